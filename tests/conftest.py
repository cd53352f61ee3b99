"""Fixtures for tests with real brokers, and their logs in the report of a test that fails."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from real_broker import Brokers, RealBroker

ASKED_FOR_KAFKA = "SEMEL_TEST_KAFKA"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """They fetch jars and start Java again and again: only when they are asked for."""
    if os.environ.get(ASKED_FOR_KAFKA):
        return
    for item in items:
        if item.get_closest_marker("kafka") is not None:
            item.add_marker(pytest.mark.skip(reason=f"make conformance runs it ({ASKED_FOR_KAFKA}=1)"))


@pytest.fixture
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Brokers of this test alone."""
    made = Brokers(tmp_path_factory.mktemp("brokers"))
    yield made
    made.reap()


@pytest.fixture(scope="module")
def shared_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Brokers that the tests of one module share; each test takes topics of its own."""
    made = Brokers(tmp_path_factory.mktemp("brokers"))
    yield made
    made.reap()


@pytest.fixture(scope="module", params=["fsync", "os"])
def broker(request: pytest.FixtureRequest, shared_brokers: Brokers) -> RealBroker:
    """One shared broker of each kind of flush: a test that asks for it runs on both."""
    return shared_brokers.start(flush=request.param)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if call.when == "call" and report.failed:
        arguments = getattr(item, "funcargs", {})
        for name in ("brokers", "shared_brokers"):
            if name in arguments:
                report.sections.extend(arguments[name].logs())
        if isinstance(arguments.get("broker"), RealBroker) and "shared_brokers" not in arguments:
            lone = arguments["broker"]
            report.sections.append((f"log of the broker at {lone.address}", lone.log()[-8000:]))
    return report

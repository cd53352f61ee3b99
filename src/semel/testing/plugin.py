"""Fixtures for pytest, which finds them by itself where semel is installed.

`semel_broker` and `semel_cluster` are started once per session, when they are first asked for. A test that has asked
for one leaves it as it found it: what was killed is up again, what was cut is healed, topics and groups are deleted.
Override `semel_settings` or `semel_cluster_settings` in a conftest.py to set the nodes otherwise.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    # Loaded when a test asks for them: this module is part of every run of pytest.
    from semel.testing.broker import Broker
    from semel.testing.cluster import Cluster

_LOG_CHARACTERS = 8000


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "semel_topic(partitions=1, **settings): the topic that semel_topic makes")


@pytest.fixture(scope="session")
def semel_settings() -> Mapping[str, object]:
    """Settings of the broker, by Kafka's names. Override it for others."""
    return {}


@pytest.fixture(scope="session")
def semel_cluster_settings() -> Mapping[str, object]:
    """Settings of the nodes of the cluster, by Kafka's names. A leader that is killed is replaced within 2 s."""
    return {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 300}


@pytest.fixture(scope="session")
def _semel_session_broker(semel_settings: Mapping[str, object]) -> Iterator[Broker]:
    from semel.testing.broker import Broker

    with Broker(settings=semel_settings, can_cut=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def _semel_session_cluster(semel_cluster_settings: Mapping[str, object]) -> Iterator[Cluster]:
    from semel.testing.cluster import Cluster

    with Cluster(nodes=3, settings=semel_cluster_settings) as cluster:
        yield cluster


@pytest.fixture
def semel_broker(_semel_session_broker: Broker) -> Iterator[Broker]:
    """A real node, with no topics and no groups."""
    yield _semel_session_broker
    _semel_session_broker.mend()
    _clean(_semel_session_broker.bootstrap_servers)


@pytest.fixture
def semel_cluster(_semel_session_cluster: Cluster) -> Iterator[Cluster]:
    """Three real brokers and a controller, with no topics and no groups."""
    yield _semel_session_cluster
    _semel_session_cluster.mend()
    _clean(_semel_session_cluster.bootstrap_servers)


@pytest.fixture
def semel_topic(request: pytest.FixtureRequest, semel_broker: Broker) -> str:
    """The name of a new topic on `semel_broker`: `@pytest.mark.semel_topic(partitions=3)` says how it is made."""
    from semel.client.admin.values import NewTopic
    from semel.sync.admin import Admin

    marker = request.node.get_closest_marker("semel_topic")
    asked = {} if marker is None else dict(marker.kwargs)
    partitions = int(asked.pop("partitions", 1))
    configs = {key.replace("_", "."): str(value) for key, value in asked.items()}
    name = f"{re.sub('[^A-Za-z0-9]+', '-', request.node.name)[:60].strip('-')}-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as admin:
        admin.create_topics(NewTopic(name, partitions, configs=configs))
    return name


def _clean(bootstrap_servers: str) -> None:
    """Topics and groups of the test go; members that it has left behind do not keep a group."""
    from semel.client.errors import SemelError
    from semel.sync.admin import Admin

    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        topics = admin.list_topics()
        if topics:
            admin.delete_topics(list(topics))
        for group in admin.list_groups():
            try:
                admin.delete_groups(group)
            except SemelError:
                pass  # it has a member still, or is gone


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A test that has failed shows what its nodes have logged."""
    report = yield
    if call.when == "call" and report.failed:  # type: ignore[attr-defined]
        arguments = getattr(item, "funcargs", {})
        broker, cluster = arguments.get("semel_broker"), arguments.get("semel_cluster")
        logs = [] if broker is None else [("log of semel_broker", broker.log)]
        if cluster is not None:
            logs += [(f"log of node {number} of semel_cluster", cluster.log(number)) for number in cluster.nodes]
        report.sections.extend((title, text[-_LOG_CHARACTERS:]) for title, text in logs)  # type: ignore[attr-defined]
    return report

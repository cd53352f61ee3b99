"""Connections that end, time that is over, versions that are agreed on, and logins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from connection_bench import Bench, bench, framed

from semel.rpc.connection import Disconnected, NoAnswer, VersionNotServed
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_request_header
from semel.wire.spec.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeature
from semel.wire.spec.heartbeat import HeartbeatRequest, HeartbeatResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.produce import ProduceRequest

# -- ends


@bench
async def test_what_is_pending_when_the_link_ends_is_told_why(it: Bench) -> None:
    futures = [it.ask(), it.ask()]
    it.link.end(ConnectionResetError("reset by peer"))
    await asyncio.sleep(0)
    for future in futures:
        with pytest.raises(Disconnected, match="ended: reset by peer before InitProducerId was answered") as caught:
            await future
        assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert it.ended == [it.connection]


@bench
async def test_closing_fails_what_is_pending_and_tells_once(it: Bench) -> None:
    future = it.ask()
    it.connection.close()
    it.connection.close()
    await asyncio.sleep(0)
    with pytest.raises(Disconnected):
        await future
    assert it.ended == [it.connection]
    assert it.link.is_closed
    assert it.connection.in_flight == 0
    assert it.loop.timers() == []


@bench
async def test_nothing_can_be_sent_over_a_connection_that_has_ended(it: Bench) -> None:
    it.connection.close()
    with pytest.raises(Disconnected, match="has ended"):
        it.ask()
    with pytest.raises(Disconnected, match="has ended"):
        it.connection.send_unanswered(ProduceRequest(acks=0), 9)


@bench
async def test_failures_that_nobody_looks_at_are_no_news(it: Bench) -> None:
    it.ask()
    it.connection.close()
    await asyncio.sleep(0)


# -- time


@bench
async def test_a_request_that_is_not_answered_in_time_ends_the_connection(it: Bench) -> None:
    slow, other = it.ask(timeout_s=2), it.ask(timeout_s=60)
    with pytest.raises(NoAnswer, match=r"10\.0\.0\.1:9092 did not answer InitProducerId within 2 s"):
        await slow
    assert it.loop.time() == pytest.approx(2)
    with pytest.raises(Disconnected, match="did not answer InitProducerId within 2 s"):
        await other
    assert it.link.is_closed
    assert it.ended == [it.connection]


@bench
async def test_time_is_over_also_for_a_request_that_was_given_up(it: Bench) -> None:
    """Its answer is still missing: the broker may be dead."""
    it.ask(timeout_s=2).cancel()
    await asyncio.sleep(3)
    assert not it.connection.is_open


@bench
async def test_an_answer_in_time_stops_the_clock(it: Bench) -> None:
    future = it.ask(timeout_s=2)
    await asyncio.sleep(1.9)
    it.link.arrive(it.answer(1))
    await future
    await asyncio.sleep(10)
    assert it.connection.is_open


@bench
async def test_an_answer_that_drips_too_slowly_is_late(it: Bench) -> None:
    future = it.ask(timeout_s=2)
    for byte in it.answer(1)[:-1]:
        it.link.arrive(bytes([byte]))
        await asyncio.sleep(0.01)
    with pytest.raises(NoAnswer):
        await future


# -- throttling


@bench
async def test_a_throttled_client_is_told_until_when(it: Bench) -> None:
    await asyncio.sleep(5)
    future = it.ask()
    it.link.arrive(it.answer(1, throttle_time_ms=1500))
    await future
    assert it.connection.throttled_until_s == pytest.approx(6.5)


@bench
async def test_a_shorter_pause_does_not_end_a_longer_one(it: Bench) -> None:
    futures = [it.ask(), it.ask()]
    it.link.arrive(it.answer(1, throttle_time_ms=5000) + it.answer(2, throttle_time_ms=1))
    await asyncio.gather(*futures)
    assert it.connection.throttled_until_s == pytest.approx(5)


@bench
async def test_who_waits_for_the_network_is_called_when_it_has_taken_everything(it: Bench) -> None:
    called: list[float] = []
    it.connection.drained_callback = lambda: called.append(it.loop.time())
    it.link.is_stuck = True
    it.ask()
    assert called == []
    it.link.drain()
    assert len(called) == 1


# -- versions


def versions(*ranges: tuple[int, int, int], **fields: Any) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges]
    return ApiVersionsResponse(api_keys=keys, **fields)


@bench
async def test_versions_are_asked_for_in_the_newest_form(it: Bench) -> None:
    asking = asyncio.create_task(it.connection.negotiate("semel", "1", 30))
    await asyncio.sleep(0)
    (frame,) = it.link.answers()
    assert read_request_header(frame).api_version == 5
    features = [FinalizedFeature(name="transaction.version", max_version_level=2)]
    it.link.arrive(framed(1, versions((0, 3, 9), (18, 0, 4), finalized_features=features), 5))
    await asking
    assert it.connection.versions == {0: (3, 9), 18: (0, 4)}
    assert it.connection.features == {"transaction.version": 2}


@pytest.mark.parametrize(("named", "expected"), [(3, 3), (0, 0), (9, 5), (-5, 0), (None, 0)])
@bench
async def test_a_broker_that_does_not_know_the_newest_form_is_asked_in_the_one_it_names(
    it: Bench, named: int | None, expected: int
) -> None:
    asking = asyncio.create_task(it.connection.negotiate("semel", "1", 30))
    await asyncio.sleep(0)
    it.link.answers()
    ranges = [] if named is None else [(18, 0, named)]
    it.link.arrive(framed(1, versions(*ranges, error_code=ErrorCode.UNSUPPORTED_VERSION), 0))
    await asyncio.sleep(0)
    ((key, version, correlation_id),) = it.asked()
    assert (key, version) == (18, expected)
    it.link.arrive(framed(correlation_id, versions((0, 3, 9)), version))
    await asking
    assert it.connection.versions == {0: (3, 9)}


@bench
async def test_a_broker_that_tells_no_versions_is_refused(it: Bench) -> None:
    asking = asyncio.create_task(it.connection.negotiate("semel", "1", 30))
    await asyncio.sleep(0)
    it.link.arrive(framed(1, versions(error_code=ErrorCode.UNSUPPORTED_VERSION), 0))
    await asyncio.sleep(0)
    it.link.arrive(framed(2, versions(error_code=ErrorCode.UNSUPPORTED_VERSION), 0))
    with pytest.raises(VersionNotServed, match=r"10\.0\.0\.1:9092"):
        await asking


@bench
async def test_the_newest_version_that_both_know_is_taken(it: Bench) -> None:
    it.connection.versions = {0: (0, 9), 22: (0, 99), 12: (90, 99), 3: (1, 5)}
    assert it.connection.version_of(ProduceRequest) == 9
    assert it.connection.version_of(InitProducerIdRequest) == 6
    assert it.connection.version_of(InitProducerIdRequest, at_most=3) == 3
    assert it.connection.version_of(MetadataRequest, at_least=5) == 5
    with pytest.raises(VersionNotServed, match="serves Metadata only in versions 1 to 5, needed is one of 6 to 13"):
        it.connection.version_of(MetadataRequest, at_least=6)
    with pytest.raises(VersionNotServed, match="serves Heartbeat only in versions 90 to 99, needed is one of 0 to 4"):
        it.connection.version_of(HeartbeatRequest)
    with pytest.raises(VersionNotServed, match="serves ApiVersions not at all"):
        it.connection.version_of(ApiVersionsRequest)
    with pytest.raises(VersionNotServed, match="serves Produce only in versions 0 to 9"):
        it.connection.version_of(ProduceRequest, at_most=2)


# -- logging in


@bench
async def test_in_the_midst_of_a_login_other_requests_wait(it: Bench) -> None:
    with it.connection.only_login():
        held = it.ask()
        it.connection.send_unanswered(ProduceRequest(acks=0), 9)
        login = it.connection.send(HeartbeatRequest(), 4, HeartbeatResponse, 30, is_login=True)
        assert [key for key, _, _ in it.asked()] == [12]
        assert it.connection.in_flight == 3
        it.link.arrive(framed(1, HeartbeatResponse(), 4))
        await login
    assert [(key, correlation_id) for key, _, correlation_id in it.asked()] == [(22, 2), (0, 3)]
    it.link.arrive(it.answer(2, 5))
    assert (await held).producer_id == 5


@bench
async def test_what_waits_for_a_login_fails_with_the_connection(it: Bench) -> None:
    with it.connection.only_login():
        held = it.ask()
        it.connection.close()
    with pytest.raises(Disconnected):
        await held
    assert it.asked() == []


@bench
async def test_what_waits_for_a_login_has_its_time_too(it: Bench) -> None:
    with it.connection.only_login():
        held = it.ask(timeout_s=2)
        with pytest.raises(NoAnswer):
            await held
    assert not it.connection.is_open

"""One connection from the client's side: pairing, bounds, timeouts, versions, and brokers that break the protocol."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine
from struct import pack
from typing import Any

import pytest
from fake_links import FakeLink

from semel.rpc.connection import Connection, Disconnected, NoAnswer, VersionNotServed
from semel.sim.loop import SimLoop, run
from semel.wire.errors import ErrorCode, WireError
from semel.wire.frame import read_request_header, response_parts
from semel.wire.schema import Response
from semel.wire.spec.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeature
from semel.wire.spec.fetch import FetchRequest, FetchResponse, FetchResponsePartition, FetchResponseTopic
from semel.wire.spec.heartbeat import HeartbeatRequest, HeartbeatResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.metadata import MetadataRequest
from semel.wire.spec.produce import ProduceRequest
from semel.wire.spec.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

LIMIT = 100_000


class Bench:
    """A connection on a link that the test holds."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.link = FakeLink("10.0.0.1:9092")
        self.ended: list[Connection] = []
        self.connection = Connection(self.link, client_id="me", max_frame_bytes=LIMIT, ended=self.ended.append)

    def ask(self, timeout_s: float = 30) -> asyncio.Future[InitProducerIdResponse]:
        return self.connection.send(InitProducerIdRequest(), 4, InitProducerIdResponse, timeout_s)

    def ask_for_bytes(self) -> asyncio.Future[SaslAuthenticateResponse]:
        return self.connection.send(SaslAuthenticateRequest(), 2, SaslAuthenticateResponse, 30)

    def asked(self) -> list[tuple[int, int, int]]:
        """Key, version and correlation id of the requests that were sent, taken out."""
        headers = [read_request_header(frame) for frame in self.link.answers()]
        return [(header.api_key, header.api_version, header.correlation_id) for header in headers]

    def answer(self, correlation_id: int, producer_id: int = 0, **fields: Any) -> bytes:
        return framed(correlation_id, InitProducerIdResponse(producer_id=producer_id, **fields), 4)


def bytes_answer(correlation_id: int, content: bytes) -> bytes:
    return framed(correlation_id, SaslAuthenticateResponse(auth_bytes=content), 2)


def fetched(correlation_id: int, records: bytes) -> bytes:
    topic = FetchResponseTopic(topic="t", partitions=[FetchResponsePartition(records=memoryview(records))])
    return framed(correlation_id, FetchResponse(responses=[topic]), 12)


def framed(correlation_id: int, response: Response, version: int) -> bytes:
    parts: list[Any] = response_parts(correlation_id, response, version)
    return b"".join(parts)


Test = Callable[..., Coroutine[Any, Any, None]]


def bench(test: Test) -> Callable[..., None]:
    def in_virtual_time(**arguments: Any) -> None:
        loop = SimLoop(end_s=10_000)
        raised: list[Any] = []
        loop.set_exception_handler(lambda _, context: raised.append(context))

        async def scenario() -> None:
            await test(Bench(loop), **arguments)

        run(scenario(), loop=loop)
        assert not raised, raised

    in_virtual_time.__name__ = test.__name__
    signature = inspect.signature(test)
    in_virtual_time.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(signature.parameters.values())[1:]
    )
    return in_virtual_time


# -- requests and answers


@bench
async def test_answers_are_paired_with_their_requests_in_order(it: Bench) -> None:
    futures = [it.ask() for _ in range(3)]
    asked = it.asked()
    assert [key for key, _, _ in asked] == [22, 22, 22]
    ids = [correlation_id for _, _, correlation_id in asked]
    assert len(set(ids)) == 3
    assert it.connection.in_flight == 3
    it.link.arrive(b"".join(it.answer(correlation_id, 100 + correlation_id) for correlation_id in ids))
    assert [(await future).producer_id for future in futures] == [100 + correlation_id for correlation_id in ids]
    assert it.connection.in_flight == 0
    assert it.connection.is_open


@bench
async def test_the_client_is_named_in_every_request(it: Bench) -> None:
    it.ask()
    (frame,) = it.link.answers()
    assert read_request_header(frame).client_id == "me"


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 5, 7, 1000])
@bench
async def test_answers_may_come_in_pieces_of_any_size(it: Bench, chunk_bytes: int) -> None:
    futures = [it.ask() for _ in range(4)]
    it.link.arrive(b"".join(it.answer(number, number) for number in range(1, 5)), chunk_bytes)
    assert [(await future).producer_id for future in futures] == [1, 2, 3, 4]


@bench
async def test_answers_of_any_size_may_be_cut_anywhere(it: Bench) -> None:
    chance = random.Random(5)
    for _ in range(60):
        count = chance.randint(1, 4)
        futures = [it.ask_for_bytes() for _ in range(count)]
        contents = [chance.randbytes(chance.choice([0, 1, 100, 5000, 70_000, 90_000])) for _ in range(count)]
        first = it.connection._last_correlation_id - count + 1
        data = b"".join(bytes_answer(first + index, content) for index, content in enumerate(contents))
        position = 0
        while position < len(data):
            size = chance.choice([1, 3, 100, 40_000, 65_536, 200_000])
            it.link.arrive(data[position : position + size])
            position += size
        assert [(await future).auth_bytes for future in futures] == contents


@bench
async def test_an_answer_stays_as_it_is_when_others_follow(it: Bench) -> None:
    """Records in answers are views: their memory must not be used again."""
    first, second = [it.connection.send(FetchRequest(), 12, FetchResponse, 30) for _ in range(2)]
    it.link.arrive(fetched(1, b"first"))
    kept = await first
    it.link.arrive(fetched(2, b"other"))
    await second
    records: Any = kept.responses[0].partitions[0].records
    assert bytes(records) == b"first"


@bench
async def test_a_request_without_an_answer_waits_for_none(it: Bench) -> None:
    it.connection.send_unanswered(ProduceRequest(acks=0), 9)
    future = it.ask()
    (_, (_, _, correlation_id)) = it.asked()
    assert it.connection.in_flight == 1
    it.link.arrive(it.answer(correlation_id, 5))
    assert (await future).producer_id == 5


@bench
async def test_correlation_ids_begin_again_after_the_largest(it: Bench) -> None:
    it.connection._last_correlation_id = 2**31 - 2
    futures = [it.ask(), it.ask()]
    ids = [correlation_id for _, _, correlation_id in it.asked()]
    assert ids == [2**31 - 1, 0]
    it.link.arrive(b"".join(it.answer(correlation_id) for correlation_id in ids))
    await asyncio.gather(*futures)


@bench
async def test_a_future_that_was_cancelled_does_not_disturb_the_next(it: Bench) -> None:
    first, second = it.ask(), it.ask()
    first.cancel()
    it.link.arrive(it.answer(1) + it.answer(2, 7))
    assert (await second).producer_id == 7
    assert it.connection.is_open


# -- brokers that break the protocol


@bench
async def test_an_answer_out_of_order_ends_the_connection_and_fails_all(it: Bench) -> None:
    futures = [it.ask(), it.ask()]
    it.link.arrive(it.answer(2))
    for future in futures:
        with pytest.raises(
            Disconnected, match=r"10\.0\.0\.1:9092.*it answered request 2, but 1 was next.*InitProducerId"
        ):
            await future
    assert not it.connection.is_open
    assert it.link.is_closed
    assert it.ended == [it.connection]


@bench
async def test_an_answer_that_nobody_asked_for_ends_the_connection(it: Bench) -> None:
    it.link.arrive(it.answer(1))
    assert not it.connection.is_open
    assert it.ended == [it.connection]


@bench
async def test_an_answer_after_the_last_one_ends_the_connection_but_not_what_was_answered(it: Bench) -> None:
    future = it.ask()
    it.link.arrive(it.answer(1, 5) + it.answer(2))
    assert (await future).producer_id == 5
    assert not it.connection.is_open


@pytest.mark.parametrize("length", [LIMIT + 1, 2**31 - 1, -1, -(2**31), 0, 3])
@bench
async def test_a_length_that_is_not_allowed_ends_the_connection(it: Bench, length: int) -> None:
    future = it.ask()
    it.link.arrive(pack(">i", length) + b"....")
    with pytest.raises(Disconnected, match=f"announced an answer of {length} bytes; allowed are up to {LIMIT}"):
        await future
    assert it.link.is_closed


@bench
async def test_the_largest_answer_that_is_allowed_is_read(it: Bench) -> None:
    future = it.ask_for_bytes()
    around = len(bytes_answer(1, b"x" * 50_000)) - 50_000
    it.link.arrive(bytes_answer(1, b"x" * (LIMIT + 4 - around)), 7_000)
    assert len((await future).auth_bytes) == LIMIT + 4 - around


@bench
async def test_memory_for_a_large_answer_is_not_taken_before_it_comes(it: Bench) -> None:
    it.ask()
    it.link.arrive(pack(">i", LIMIT) + b"x")
    assert len(it.connection.get_buffer()) == LIMIT - 1


@bench
async def test_garbage_ends_the_connection_with_what_could_not_be_read(it: Bench) -> None:
    futures = [it.ask(), it.ask()]
    it.link.arrive(pack(">ii", 9, 1) + b"\x00\xff\xff\xff\xff")
    for future in futures:
        with pytest.raises(Disconnected, match="its answer to InitProducerId cannot be read") as caught:
            await future
        assert isinstance(caught.value.__cause__, WireError)
    assert it.link.is_closed
    assert it.ended == [it.connection]


@bench
async def test_bytes_after_an_answer_are_garbage_too(it: Bench) -> None:
    future = it.ask()
    good = it.answer(1)
    it.link.arrive(pack(">i", len(good) - 4 + 3) + good[4:] + b"...")
    with pytest.raises(Disconnected, match="too many"):
        await future


@bench
async def test_random_bytes_never_raise_into_the_loop(it: Bench) -> None:
    chance = random.Random(7)
    for _ in range(300):
        one = Bench(it.loop)
        future = one.ask()
        body = pack(">i", 1) + chance.randbytes(chance.randint(0, 40))
        one.link.arrive(pack(">i", len(body)) + body)
        await asyncio.sleep(0)
        if not future.done():
            future.cancel()
        elif future.exception() is not None:
            assert isinstance(future.exception(), Disconnected)
            assert one.link.is_closed
        one.connection.close()


@bench
async def test_nothing_that_follows_a_broken_answer_is_read(it: Bench) -> None:
    futures = [it.ask(), it.ask()]
    it.link.arrive(pack(">ii", 9, 1) + b"\x00\xff\xff\xff\xff" + it.answer(2, 5))
    with pytest.raises(Disconnected):
        await futures[1]


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
    timers: Any = it.loop._scheduled  # type: ignore[attr-defined]
    assert all(timer.cancelled() for timer in timers)


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
    assert read_request_header(frame).api_version == 4
    features = [FinalizedFeature(name="transaction.version", max_version_level=2)]
    it.link.arrive(framed(1, versions((0, 3, 9), (18, 0, 4), finalized_features=features), 4))
    await asking
    assert it.connection.versions == {0: (3, 9), 18: (0, 4)}
    assert it.connection.features == {"transaction.version": 2}


@pytest.mark.parametrize(("named", "expected"), [(3, 3), (0, 0), (9, 4), (-5, 0), (None, 0)])
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

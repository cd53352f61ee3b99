"""Single requests on one connection, one at a time: what each costs the broker in CPU, and how long it takes."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import crc32c
from brokers import Node
from curves import Curve, Point

from raw_client import RawClient
from semel.records.build import build_batch
from semel.wire.apis import response_class
from semel.wire.frame import read_response, request_bytes
from semel.wire.schema import Request, Response
from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from semel.wire.spec.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from semel.wire.spec.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

CPU, WALL = "us of broker CPU", "us"
EACH = ", for each"
"""Ends the name of work that is divided by what it grows with."""
FLAT = 1.3
TRIES = 12
REQUESTS = 300
PRODUCE_VERSION, FETCH_VERSION = 9, 11
FETCH_BYTES = 64 << 10
GROUP_KEY, TRANSACTION_KEY = 0, 1
_CLIENT_ID = "growth"
PULSE_TOPIC = "pulse"
# Of a batch: where its CRC and its producer id stand, and where the CRC's range begins.
_CRC_AT, _CRC_FROM, _PRODUCER_ID_AT = 17, 21, 43


class Cost(NamedTuple):
    """Of one piece of work, in microseconds."""

    cpu_us: float
    wall_us: float


class Costs:
    """What was measured of several kinds of work while something grew: becomes curves, two for each kind."""

    def __init__(self, against: str) -> None:
        self._against = against
        self._points: dict[str, list[tuple[float, list[Cost]]]] = {}

    def add(self, what: str, size: float, tries: Sequence[Cost]) -> str:
        self._points.setdefault(what, []).append((size, list(tries)))
        lowest = _lowest(tries)
        return f"{what}: {lowest.cpu_us:,.0f} us of CPU, {lowest.wall_us:,.0f} us"

    def curves(self) -> list[Curve]:
        found = []
        for what, points in self._points.items():
            # The time of work that many requests make up is for the most part the client's.
            for unit, place in ((CPU, 0),) if what.endswith(EACH) else ((CPU, 0), (WALL, 1)):
                values = [Point(size, tuple(one[place] for one in tries)) for size, tries in points]
                found.append(Curve(self._against, what, unit, values, FLAT))
        return found


class Pulse:
    """A second broker that stays small, and what the same requests cost there at the same time.

    Memory that the machine has not touched for long is slow: what fills it is comparable only after it was divided by
    this.
    """

    def __init__(self, node: Node) -> None:
        self.caller = Caller(node)
        node.create(PULSE_TOPIC, 1)
        self.caller.cost([produce_frame(PULSE_TOPIC, 0, batch([b"." * 1000] * 16))] * 20, check_produced)
        self._first: dict[str, Cost] = {}

    def close(self) -> None:
        self.caller.raw.close()

    def tries(self, name: str, work: Callable[[], Cost], like: Callable[[], Cost]) -> list[Cost]:
        """What the work would have cost at the beginning; `like` is the same on the second broker, by the same name."""
        with on_one_core():
            pairs = [(work(), like()) for _ in range(TRIES + 1)][1:]
        first = self._first.setdefault(name, _lowest([beat for _, beat in pairs]))
        cpu = sorted(one.cpu_us * first.cpu_us / beat.cpu_us for one, beat in pairs)
        wall = sorted(one.wall_us * first.wall_us / beat.wall_us for one, beat in pairs)
        # The lowest of what is divided by something noisy is luck: the upper half, whose lowest is the median.
        return [Cost(*both) for both in zip(cpu[TRIES // 2 :], wall[TRIES // 2 :], strict=True)]


def tries(work: Callable[[], Cost]) -> list[Cost]:
    """The first warms up and does not count."""
    with on_one_core():
        return [work() for _ in range(TRIES + 1)][1:]


@contextmanager
def on_one_core() -> Iterator[None]:
    """What is started or done meanwhile. Broker and client take turns, so that one core is enough for both; with more,
    it is a matter of luck where each of them runs, and that alone makes a request twice as dear."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _lowest(costs: Sequence[Cost]) -> Cost:
    return Cost(*(min(one) for one in zip(*costs, strict=True)))


class Caller:
    """One connection to one broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.raw = RawClient(node.process.port, timeout_s=60)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.close()

    def cost(self, frames: list[bytes], check: Callable[[bytes], None]) -> Cost:
        """Of a request each, by all of these. `check` looks at each answer and raises."""
        answers, waits_s = [], []
        raw, now = self.raw, time.perf_counter
        before_s = cpu_s(self._node)
        for frame in frames:
            begin_s = now()
            raw.socket.sendall(frame)
            answers.append(raw.read_frame())
            waits_s.append(now() - begin_s)
        used_s = cpu_s(self._node) - before_s
        for answer in answers:
            check(answer)
        return Cost(used_s / len(frames) * 1e6, statistics.median(waits_s) * 1e6)

    def call(self, request: Request, version: int) -> Response:
        return self.raw.call_any(request, version)


def cpu_s(node: Node) -> float:
    """To the nanosecond, of all threads: the kernel's clock of another process has its id in the clock's number."""
    return time.clock_gettime((~node.process.pid << 3) | 2)


def make_coordinator(node: Node, kind: int) -> None:
    """Asks for one until there is one: its topic is made when it is first asked for."""
    with Caller(node) as caller:
        for _ in range(200):
            told = caller.raw.call(FindCoordinatorRequest(key="first", key_type=kind), 3, FindCoordinatorResponse)
            if told.error_code == 0:
                return
            time.sleep(0.05)
        refuse_errors([told.error_code])


def frame_of(request: Request, version: int) -> bytes:
    return bytes(request_bytes(request, version, 1, _CLIENT_ID))


def answer_of(request: type[Request], version: int, answer: bytes) -> Response:
    return read_response(response_class(request.api_key), version, answer)[1]


def batch(
    values: Sequence[bytes], producer_id: int = -1, sequence: int = -1, *, epoch: int = 0, transactional: bool = False
) -> bytearray:
    return build_batch(
        list(values),
        base_timestamp_ms=time.time_ns() // 1_000_000,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def produce_frame(topic: str, partition: int, records: bytearray, transactional_id: str | None = None) -> bytes:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data])
    return frame_of(request, PRODUCE_VERSION)


def fetch_frame(topic: str, partition: int, offset: int, *, read_committed: bool = False) -> bytes:
    wanted = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        isolation_level=int(read_committed),
        session_epoch=-1,
        topics=[FetchRequestTopic(topic=topic, partitions=[wanted])],
    )
    return frame_of(request, FETCH_VERSION)


def check_produced(answer: bytes) -> None:
    told = answer_of(ProduceRequest, PRODUCE_VERSION, answer)
    assert isinstance(told, ProduceResponse)
    refuse_errors(part.error_code for topic in told.responses for part in topic.partition_responses)


def check_fetched(answer: bytes) -> None:
    told = answer_of(FetchRequest, FETCH_VERSION, answer)
    assert isinstance(told, FetchResponse)
    parts = [part for topic in told.responses for part in topic.partitions]
    refuse_errors([told.error_code, *(part.error_code for part in parts)])
    if not all(part.records for part in parts):
        raise RuntimeError("a fetch found nothing")


def refuse_errors(codes: Iterable[int]) -> None:
    wrong = [code for code in codes if code]
    if wrong:
        raise RuntimeError(f"the broker answered {wrong[:5]}")


def write_from_many(caller: Caller, topic: str, producer_ids: range, in_flight: int = 100) -> None:
    """A record from each producer, with many requests under way: only producer id and CRC differ between them."""
    records = batch([b"."], producer_id=0, sequence=0)
    frame = bytearray(produce_frame(topic, 0, records))
    start = frame.index(records)
    view = memoryview(frame)
    raw = caller.raw
    for first in range(producer_ids.start, producer_ids.stop, in_flight):
        several = bytearray()
        count = min(in_flight, producer_ids.stop - first)
        for producer_id in range(first, first + count):
            frame[start + _PRODUCER_ID_AT : start + _PRODUCER_ID_AT + 8] = producer_id.to_bytes(8, "big")
            crc = crc32c.crc32c(view[start + _CRC_FROM : start + len(records)])
            frame[start + _CRC_AT : start + _CRC_AT + 4] = crc.to_bytes(4, "big")
            several += frame
        raw.socket.sendall(several)
        for _ in range(count - 1):
            raw.read_frame()
        check_produced(raw.read_frame())

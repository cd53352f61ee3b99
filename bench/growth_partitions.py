"""What requests cost a broker with more and more partitions: to one of them, and to all of them in a fetch session."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping

from brokers import Node
from cases import Progress
from curves import Curve, size_text
from growth_load import (
    FETCH_VERSION,
    REQUESTS,
    Caller,
    Cost,
    Costs,
    batch,
    check_fetched,
    check_produced,
    cpu_s,
    fetch_frame,
    produce_frame,
    refuse_errors,
    tries,
)

from semel.wire.spec.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse

_RECORD = b"." * 100
_SESSION_FETCHES = 100
_SEED = 7


def measure(node: Node, sizes: list[int], tell: Progress) -> list[Curve]:
    """Requests to one of them go round; a session reads all of them at once, and one has news."""
    costs = Costs("partitions")
    with Caller(node) as caller:
        for size in sizes:
            topic = _Topic(caller, node, f"partitions-{size}", size)
            works = {
                "produce to one of them": topic.produce_cost,
                "fetch from one of them": topic.fetch_cost,
                "fetch session of all": topic.session_cost,
            }
            told = [costs.add(what, size, tries(work)) for what, work in works.items()]
            node.delete(topic.name)
            tell(f"{size_text(size)} partitions: {'; '.join(told)}")
    return costs.curves()


class _Topic:
    """A topic with a record in each partition."""

    def __init__(self, caller: Caller, node: Node, name: str, size: int) -> None:
        self._caller = caller
        self._node = node
        self.name = name
        self._size = size
        self._turn = itertools.cycle(range(size))
        self._chance = random.Random(_SEED)
        self._session_id = self._epoch = 0
        self._ends: dict[int, int] = {}
        node.create(name, size)
        caller.cost([produce_frame(name, index, batch([_RECORD])) for index in range(size)], check_produced)

    def produce_cost(self) -> Cost:
        records = batch([_RECORD])
        frames = [produce_frame(self.name, next(self._turn), records) for _ in range(REQUESTS)]
        return self._caller.cost(frames, check_produced)

    def fetch_cost(self) -> Cost:
        frames = [fetch_frame(self.name, next(self._turn), 0) for _ in range(REQUESTS)]
        return self._caller.cost(frames, check_fetched)

    def session_cost(self) -> Cost:
        """Of a fetch that finds one new record."""
        if not self._session_id:
            self._ends = self._read_ends()
            self._fetch(self._ends)
            self._fetch({})  # which finds that the reader knows all
        used_s = waited_s = 0.0
        for _ in range(_SESSION_FETCHES):
            index = self._chance.randrange(self._size)
            self._caller.cost([produce_frame(self.name, index, batch([_RECORD]))], check_produced)
            before_s, begin_s = cpu_s(self._node), time.perf_counter()
            answer = self._fetch({})
            waited_s += time.perf_counter() - begin_s
            used_s += cpu_s(self._node) - before_s
            news = [part.partition_index for topic in answer.responses for part in topic.partitions if part.records]
            if news != [index]:
                raise RuntimeError(f"partition {index} has a record, the session has told of {news}")
            self._ends[index] += 1
            self._fetch({index: self._ends[index]})
        return Cost(used_s / _SESSION_FETCHES * 1e6, waited_s / _SESSION_FETCHES * 1e6)

    def _read_ends(self) -> dict[int, int]:
        """Where each partition ends, as a fetch tells it."""
        answer = self._fetch(dict.fromkeys(range(self._size), 0), remembered=False)
        return {part.partition_index: part.high_watermark for topic in answer.responses for part in topic.partitions}

    def _fetch(self, offsets: Mapping[int, int], *, remembered: bool = True) -> FetchResponse:
        """`offsets` are what changes in the session."""
        wanted = [
            FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
            for index, offset in offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_id=self._session_id if remembered else 0,
            session_epoch=self._epoch if remembered else -1,
            topics=[FetchRequestTopic(topic=self.name, partitions=wanted)] if wanted else [],
        )
        answer = self._caller.raw.call(request, FETCH_VERSION, FetchResponse)
        refuse_errors([answer.error_code])
        if remembered:
            self._session_id = answer.session_id
            self._epoch += 1
        return answer

"""What requests cost with more and more transactions open in one partition: to write, to read, to begin and to end."""

from __future__ import annotations

import time

from brokers import Node
from cases import Progress
from curves import Curve, size_text
from growth_load import (
    REQUESTS,
    TRANSACTION_KEY,
    Caller,
    Cost,
    Costs,
    answer_of,
    batch,
    check_fetched,
    check_produced,
    cpu_s,
    fetch_frame,
    frame_of,
    make_coordinator,
    produce_frame,
    refuse_errors,
    tries,
)

from semel.wire.spec.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from semel.wire.spec.end_txn import EndTxnRequest, EndTxnResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_TOPIC = "transactions"
_ADD_VERSION, _END_VERSION, _INIT_VERSION = 3, 3, 4
_TIMEOUT_MS = 900_000
_RECORD = b"." * 100
_ENDING = 100
# Markers follow the answer.
_MARKERS_S = 0.05


def measure(node: Node, sizes: list[int], tell: Progress) -> list[Curve]:
    """`sizes` of them stay open; a hundred more begin and end."""
    node.create(_TOPIC, 1)
    costs = Costs("open transactions")
    make_coordinator(node, TRANSACTION_KEY)
    with Caller(node) as caller:
        # What is below all open transactions: committed readers get no farther.
        caller.cost([produce_frame(_TOPIC, 0, batch([b"." * 1000] * 64))] * 2, check_produced)
        ending = [_Producer(caller, f"ending-{number}") for number in range(_ENDING)]
        open_ones: list[_Producer] = []
        for size in sizes:
            new = [_Producer(caller, f"open-{number}") for number in range(len(open_ones), size)]
            _begin(caller, new)
            open_ones += new
            works = {
                "produce beside them": lambda: caller.cost(_produces(), check_produced),
                "fetch read_committed": lambda: caller.cost(_fetches(), check_fetched),
                "begin, with a record": lambda: _begun(caller, ending),
                "commit": lambda: _committed(node, caller, ending),
            }
            told = [costs.add(what, size, tries(work)) for what, work in works.items()]
            tell(f"{size_text(size)} open transactions: {'; '.join(told)}")
    return costs.curves()


def _produces() -> list[bytes]:
    return [produce_frame(_TOPIC, 0, batch([_RECORD]))] * REQUESTS


def _fetches() -> list[bytes]:
    return [fetch_frame(_TOPIC, 0, 0, read_committed=True)] * REQUESTS


class _Producer:
    """A transactional id, with the producer id that it was given."""

    def __init__(self, caller: Caller, name: str) -> None:
        self.name = name
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TIMEOUT_MS)
        told = caller.call(request, _INIT_VERSION)
        assert isinstance(told, InitProducerIdResponse)
        refuse_errors([told.error_code])
        self._producer_id, self._epoch, self._sequence = told.producer_id, told.producer_epoch, 0

    def add_frame(self) -> bytes:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=_TOPIC, partitions=[0])],
        )
        return frame_of(request, _ADD_VERSION)

    def produce_frame(self) -> bytes:
        records = batch([_RECORD], self._producer_id, self._sequence, epoch=self._epoch, transactional=True)
        self._sequence += 1
        return produce_frame(_TOPIC, 0, records, self.name)

    def end_frame(self) -> bytes:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self._producer_id, producer_epoch=self._epoch, committed=True
        )
        return frame_of(request, _END_VERSION)


def _begin(caller: Caller, producers: list[_Producer]) -> Cost:
    if not producers:
        return Cost(0, 0)
    added = caller.cost([one.add_frame() for one in producers], _check_added)
    produced = caller.cost([one.produce_frame() for one in producers], check_produced)
    return Cost(added.cpu_us + produced.cpu_us, added.wall_us + produced.wall_us)


def _begun(caller: Caller, producers: list[_Producer]) -> Cost:
    cost = _begin(caller, producers)
    _end(caller, producers)
    return cost


def _committed(node: Node, caller: Caller, producers: list[_Producer]) -> Cost:
    """With its markers."""
    _begin(caller, producers)
    before_s = cpu_s(node)
    cost = _end(caller, producers)
    return Cost((cpu_s(node) - before_s) / len(producers) * 1e6, cost.wall_us)


def _end(caller: Caller, producers: list[_Producer]) -> Cost:
    cost = caller.cost([one.end_frame() for one in producers], _check_ended)
    time.sleep(_MARKERS_S)
    return cost


def _check_added(answer: bytes) -> None:
    told = answer_of(AddPartitionsToTxnRequest, _ADD_VERSION, answer)
    assert isinstance(told, AddPartitionsToTxnResponse)
    refuse_errors(
        part.partition_error_code for topic in told.results_by_topic_v3_and_below for part in topic.results_by_partition
    )


def _check_ended(answer: bytes) -> None:
    told = answer_of(EndTxnRequest, _END_VERSION, answer)
    assert isinstance(told, EndTxnResponse)
    refuse_errors([told.error_code])

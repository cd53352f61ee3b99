"""Requests that many connections have sent before the broker looks: written together, answered each for itself."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from raw_client import RawClient, batch_of, produce_request
from real_broker import Brokers, RealBroker
from semel.wire.errors import ErrorCode
from semel.wire.frame import read_response
from semel.wire.spec.produce import PartitionProduceResponse, ProduceResponse

CONNECTIONS = 40
PARTITIONS = 3
TOPIC = "gathered"
VERSION = 9


class Crowd:
    """Producers that send at the same moment, one connection and one partition each."""

    def __init__(self, broker: RealBroker) -> None:
        self.broker = broker
        self.clients = [RawClient(broker.port) for _ in range(CONNECTIONS)]
        self.clients[0].make_topic(TOPIC)
        self.producer_ids = [client.new_producer_id() for client in self.clients]
        self.sent: list[list[bytes]] = [[] for _ in self.clients]
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        for _ in range(2):  # the first goes the long way, and the second finds the lane
            for number in range(CONNECTIONS):
                self._send(number)
                assert self._answer(number).error_code == 0

    @contextmanager
    def broker_looks_away(self) -> Iterator[None]:
        os.kill(self.broker.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.broker.pid, signal.SIGCONT)

    def send_together(self) -> list[PartitionProduceResponse]:
        with self.broker_looks_away():
            for number in range(CONNECTIONS):
                self._send(number)
        return [self._answer(number) for number in range(CONNECTIONS)]

    def _send(self, number: int) -> None:
        sent = self.sent[number]
        value = b"%d of %d" % (len(sent), number)
        batch = batch_of(
            [value * 20],
            timestamp_ms=time.time_ns() // 1_000_000,
            producer_id=self.producer_ids[number],
            sequence=len(sent),
        )
        self.clients[number].send(produce_request(TOPIC, number % PARTITIONS, batch), VERSION)
        sent.append(value * 20)

    def _answer(self, number: int) -> PartitionProduceResponse:
        _, response = read_response(ProduceResponse, VERSION, self.clients[number].read_frame())
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == 0:
            self.acknowledged[number % PARTITIONS][answer.base_offset] = self.sent[number][-1]
        else:  # its sequence is free again
            self.sent[number].pop()
        return answer

    def logs(self) -> list[dict[int, bytes]]:
        read = [self.clients[0].read_log(TOPIC, partition) for partition in range(PARTITIONS)]
        return [{record.offset: bytes(record.value or b"") for record in records} for records in read]


def test_each_is_there_once_where_it_was_acknowledged(brokers: Brokers) -> None:
    crowd = Crowd(brokers.new(flush="os", settings={"num.partitions": str(PARTITIONS)}).start())
    for _ in range(20):
        assert {answer.error_code for answer in crowd.send_together()} == {0}
    assert sum(map(len, crowd.acknowledged)) == 22 * CONNECTIONS
    assert crowd.logs() == crowd.acknowledged
    crowd.broker.kill()
    crowd.broker.start()
    crowd.clients = [RawClient(crowd.broker.port)]
    assert crowd.logs() == crowd.acknowledged


def test_when_the_disk_takes_only_some_the_others_are_refused_and_may_come_again(brokers: Brokers) -> None:
    crowd = Crowd(brokers.new(flush="os", settings={"num.partitions": str(PARTITIONS)}).start())
    size = max(path.stat().st_size for path in crowd.broker.data.glob(f"{TOPIC}-*/*.log"))
    one = size // (2 * CONNECTIONS // PARTITIONS)
    soft, hard = resource.prlimit(crowd.broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(crowd.broker.pid, resource.RLIMIT_FSIZE, (size + 5 * one, hard))
    codes = [answer.error_code for answer in crowd.send_together()]
    assert set(codes) == {0, ErrorCode.KAFKA_STORAGE_ERROR}
    assert codes.count(0) >= PARTITIONS
    assert crowd.logs() == crowd.acknowledged
    resource.prlimit(crowd.broker.pid, resource.RLIMIT_FSIZE, (soft, hard))
    assert {answer.error_code for answer in crowd.send_together()} == {0}
    assert crowd.logs() == crowd.acknowledged


def test_answers_come_in_the_order_of_the_requests_of_their_connection(brokers: Brokers) -> None:
    """Alone or several in a read, by the quick way or the long one: a client counts on it."""
    crowd = Crowd(brokers.new(flush="os", settings={"num.partitions": str(PARTITIONS)}).start())
    now_ms = time.time_ns() // 1_000_000
    for turn in range(60):
        asked = []
        for number, client in enumerate(crowd.clients[:10]):
            values = [b"%d" % turn] * (1 + number % 3)
            request = produce_request(TOPIC, number % PARTITIONS, batch_of(values, timestamp_ms=now_ms))
            asked.append([client.send(request, VERSION) for _ in range(4)])
        for client, correlation_ids in zip(crowd.clients, asked, strict=False):
            answers = [read_response(ProduceResponse, VERSION, client.read_frame()) for _ in correlation_ids]
            assert [correlation_id for correlation_id, _ in answers] == correlation_ids
            results = [answer.responses[0].partition_responses[0] for _, answer in answers]
            assert {result.error_code for result in results} == {0}
            offsets = [result.base_offset for result in results]
            assert offsets == sorted(set(offsets))

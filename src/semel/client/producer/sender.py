"""Sends what the accumulator has gathered, and decides what every answer means for its batch.

There is no task and no polling: a turn runs when something has changed (a batch was begun or filled, an answer came, a
connection was made) or when a timer says that a batch has lingered, or waited after a failure, long enough. A request
carries at most one batch of each partition. Whoever was served goes to the end of the line, so that the next request
begins with another partition, and none is starved by the request size.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from math import inf

from semel.client.cluster import Cluster
from semel.client.counts import ProducerCounts
from semel.client.errors import (
    DeliveryTimedOut,
    Disconnected,
    SemelError,
    error_for,
    is_retriable,
)
from semel.client.metadata import NO_NODE, Node
from semel.client.peers import as_semel_error
from semel.client.producer.accumulator import Accumulator
from semel.client.producer.batch import ProducerBatch
from semel.client.producer.identity import IdempotentIdentity
from semel.client.producer.lane import Lane
from semel.client.producer.refusals import (
    MOVED,
    OUT_OF_EPOCH,
    OUT_OF_SEQUENCE,
    PERHAPS_WRITTEN,
    WRITTEN,
    doubtful,
    record_errors,
)
from semel.client.producer.settings import ProducerSettings
from semel.client.producer.shipment import Shipment, produce_request
from semel.client.producer.transactions import Transactions
from semel.host.api import Host
from semel.peer.backoff import Backoff
from semel.rpc.connection import Connection, VersionNotServed
from semel.wire.errors import ErrorCode
from semel.wire.spec.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

logger = logging.getLogger("semel.producer")


class Sender:
    def __init__(
        self,
        host: Host,
        cluster: Cluster,
        accumulator: Accumulator,
        settings: ProducerSettings,
        transactions: Transactions | None,
    ) -> None:
        self.flushing = 0
        """How many callers wait for everything to be sent: nothing lingers meanwhile."""
        self.counts = ProducerCounts()
        self._clock = host.clock
        self._cluster = cluster
        self._accumulator = accumulator
        self._settings = settings
        self._transactions = transactions
        self._identity = (
            IdempotentIdentity(cluster, self.wake) if settings.enable_idempotence and transactions is None else None
        )
        self._backoff = Backoff(host.random, settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._linger_s = settings.linger_s
        self._is_eager = settings.linger_ms is None
        if self._is_eager:
            accumulator.awaited = self.wake
        self._in_flight: dict[int, int] = {}
        self._shipments: dict[Shipment, None] = {}
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        cluster.changed.append(self.wake)
        cluster.nodes.connected = lambda node_id: self.wake()
        cluster.nodes.ended = self._node_lost
        if transactions is not None:
            transactions.changed = self.wake

    # -- turns

    def wake(self) -> None:
        """Something has changed: look at everything once this turn of the loop is over."""
        if self._soon is None and not self._is_closed:
            self._soon = asyncio.get_running_loop().call_soon(self._turn)

    def _node_lost(self, node_id: int) -> None:
        """Its partitions may have another leader by now; if not, it is connected to again when its pause is over."""
        self._cluster.stale()
        self.wake()

    def _turn(self) -> None:
        self._soon = None
        if self._is_closed:
            return
        if self._transactions is not None and (refusal := self._transactions.refusal) is not None:
            self._accumulator.fail_waiting(refusal)
        now_s = asyncio.get_running_loop().time()
        next_s = inf
        ready: dict[int, list[Lane]] = {}
        for lane in list(self._accumulator.active):
            self._expire(lane, now_s)
            if not lane.waiting:
                self._accumulator.active.pop(lane, None)
                continue
            next_s = min(next_s, lane.waiting[0].created_s + self._settings.delivery_timeout_s)
            ready_s = self._ready_s(lane, now_s)
            if ready_s > now_s:
                next_s = min(next_s, ready_s)
                continue
            node_id = self._cluster.leader_of(lane.topic, lane.partition)
            if node_id == NO_NODE:
                self._cluster.watch([lane.topic])
                self._cluster.stale()
                continue
            ready.setdefault(node_id, []).append(lane)
        for node_id, lanes in ready.items():
            next_s = min(next_s, self._send_to(node_id, lanes, now_s))
        self._set_timer(next_s)

    def _set_timer(self, when_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when_s < inf:
            self._timer = asyncio.get_running_loop().call_at(when_s, self._turn)

    def _ready_s(self, lane: Lane, now_s: float) -> float:
        """When the first of the waiting may go: now or earlier, at a time, or (inf) after something else happens."""
        if lane.not_before_s > now_s:
            return lane.not_before_s
        if self._settings.enable_idempotence:
            if not self._may_send_in_order(lane):
                return inf
        elif lane.in_flight and self._settings.max_in_flight_requests_per_connection == 1:
            return inf  # nor on another connection, when the leader has moved: whoever allows one only wants order
        first = lane.waiting[0]
        if first.is_full or len(lane.waiting) > 1 or self.flushing or self._accumulator.line:
            return now_s
        if self._is_eager and first.waiting is not None:
            return now_s
        return first.created_s + self._linger_s

    def _may_send_in_order(self, lane: Lane) -> bool:
        if self._transactions is not None:
            lane.adopt(self._transactions.identity)
            return self._transactions.may_send(lane) and lane.may_send()
        if self._identity is None:
            return False
        if self._identity.failure is not None:
            self._accumulator.fail_waiting(self._identity.failure)
            return False
        if self._identity.current is None:
            self._identity.ask()
            return False
        if lane.can_restart():
            # Another partition may have raised it already, or another id have come.
            newer = self._identity.current if self._identity.current != lane.identity else self._identity.raised()
            if newer is None:
                return False
            for batch in lane.restart(newer):
                self._finish(lane, batch, doubtful(batch))
        lane.adopt(self._identity.current)
        return bool(lane.waiting) and lane.may_send()

    def _expire(self, lane: Lane, now_s: float) -> None:
        """Batches that have waited too long fail. The oldest come first, so it is enough to look at those."""
        while lane.waiting and self._is_late(lane.waiting[0], now_s):
            batch = lane.waiting.popleft()
            lane.failed(batch)
            self._finish(lane, batch, self._too_late(lane, batch))

    def _is_late(self, batch: ProducerBatch, now_s: float) -> bool:
        return now_s >= batch.created_s + self._settings.delivery_timeout_s

    def _too_late(self, lane: Lane, batch: ProducerBatch) -> DeliveryTimedOut:
        text = f"{batch.topic}-{batch.partition}: not acknowledged within {self._settings.delivery_timeout_s:g} s"
        if batch.in_doubt:
            often = "once" if batch.attempts == 1 else f"{batch.attempts} times"
            text += f"; it was sent {often} and may have been written"
        else:
            text += "; it was not written"
        problem = lane.problem
        if problem is not None:
            return DeliveryTimedOut(
                f"{text}; the last attempt: {problem.text}", code=problem.code, advice=problem.advice
            )
        why = self._cluster.why_out_of_reach(batch.topic, batch.partition)
        return DeliveryTimedOut(text if why is None else f"{text}; {why}")

    # -- sending

    def _send_to(self, node_id: int, lanes: list[Lane], now_s: float) -> float:
        """Sends as much as the limits allow. Returns when to look again: inf if something will wake us."""
        connection = self._cluster.nodes.connection(node_id)
        if connection is None:
            return inf
        if connection.throttled_until_s > now_s:
            return connection.throttled_until_s
        if self._settings.acks == 0 and connection.link.unsent_bytes > self._settings.max_request_size:
            connection.drained_callback = self.wake  # nothing else keeps a producer without answers from going on
            return inf
        next_s = inf
        while lanes and self._in_flight.get(node_id, 0) < self._settings.max_in_flight_requests_per_connection:
            served = self._fitting(lanes)
            self._ship(node_id, connection, served)
            lanes = lanes[len(served) :] + served
            times = {lane: self._ready_s(lane, now_s) for lane in lanes if lane.waiting}
            lanes = [lane for lane, ready_s in times.items() if ready_s <= now_s]
            next_s = min([next_s, *(ready_s for ready_s in times.values() if ready_s > now_s)])
        return next_s

    def _fitting(self, lanes: list[Lane]) -> list[Lane]:
        """The lanes whose first batches fit one request. The first goes in any case: an oversized batch goes alone."""
        chosen: list[Lane] = []
        size = 0
        for lane in lanes:
            size += lane.waiting[0].size_bytes
            if chosen and size > self._settings.max_request_size:
                break
            chosen.append(lane)
        return chosen

    def _ship(self, node_id: int, connection: Connection, lanes: Iterable[Lane]) -> None:
        settings = self._settings
        if self._transactions is not None:
            self._transactions.sending()
        loaded: list[tuple[Lane, ProducerBatch]] = []
        for lane in lanes:
            self._accumulator.active[lane] = self._accumulator.active.pop(lane, None)  # to the end of the line
            batch = lane.take(named=settings.enable_idempotence)
            if not batch.is_sealed:
                batch.seal(
                    transactional=self._transactions is not None,
                    codec=settings.codec,
                    level=settings.compression_level,
                )
            loaded.append((lane, batch))
        at_least, at_most = (0, 1 << 15) if self._transactions is None else self._transactions.produce_versions
        shipment = Shipment(node_id, loaded)
        try:
            version = connection.version_of(ProduceRequest, at_least=at_least, at_most=at_most)
            request, version = produce_request(shipment, self._cluster, settings, version)
            if settings.acks == 0:
                connection.send_unanswered(request, version)
                self._assume_written(shipment)
                return
            future = connection.send(request, version, ProduceResponse, settings.request_timeout_ms / 1000)
        except VersionNotServed as error:
            self._give_up(shipment, as_semel_error(error))
            return
        except OSError as error:
            self._lost(shipment, error)
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        self._shipments[shipment] = None
        self._watch(shipment)
        began_ns = self._clock.monotonic_ns()
        future.add_done_callback(lambda done: self._answered(shipment, done, began_ns))

    def _assume_written(self, shipment: Shipment) -> None:
        for lane, batch in shipment.loaded:
            lane.written(batch)
            self._delivered(batch)

    def _delivered(self, batch: ProducerBatch) -> None:
        if not batch.done:  # else it has failed before its answer came
            self.counts.delivered(batch.count, len(batch.payload or b""))
        self._accumulator.finish(batch, None)

    def _give_up(self, shipment: Shipment, problem: SemelError) -> None:
        """It was not sent, and trying again would not help."""
        for lane, batch in shipment.loaded:
            lane.forget(batch)
            lane.failed(batch)
            self._finish(lane, batch, problem)

    # -- answers

    def _watch(self, shipment: Shipment) -> None:
        shipment.watch(self._settings.delivery_timeout_s, self._settings.request_timeout_ms / 1000, self._overdue)

    def _overdue(self, shipment: Shipment) -> None:
        """Time is over for batches whose answer is still to come: they fail, in doubt; the answer may tell more."""
        now_s = asyncio.get_running_loop().time()
        for lane, batch in shipment.loaded:
            if not batch.done and self._is_late(batch, now_s):
                batch.in_doubt = True
                lane.failed(batch)
                self._finish(lane, batch, self._too_late(lane, batch))
        self._watch(shipment)

    def _answered(self, shipment: Shipment, future: asyncio.Future[ProduceResponse], began_ns: int) -> None:
        shipment.unwatch()
        self._shipments.pop(shipment, None)
        self._in_flight[shipment.node_id] -= 1
        if future.cancelled():
            self._lost(shipment, ConnectionError("the request was cancelled"))
        elif (error := future.exception()) is not None:
            self._lost(shipment, error)
        else:
            self.counts.request_times.observe(self._clock.monotonic_ns() - began_ns)
            self._read(shipment, future.result())
        self.wake()

    def _lost(self, shipment: Shipment, error: BaseException) -> None:
        """No answer: nobody knows whether the batches were written."""
        self._cluster.stale()
        problem = as_semel_error(error)
        for lane, batch in shipment.loaded:
            batch.in_doubt = True
            self._retry_or_fail(lane, batch, problem)

    def _read(self, shipment: Shipment, answer: ProduceResponse) -> None:
        nodes = [Node(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints]
        told = shipment.paired(answer)
        for lane, batch in shipment.loaded:
            result = told.get((lane.topic, lane.partition))
            if result is None:
                batch.in_doubt = True
                problem = Disconnected(f"{lane.topic}-{lane.partition}: the answer has no word of it")
                self._retry_or_fail(lane, batch, problem)
            elif result.error_code in WRITTEN:
                batch.base_offset = result.base_offset
                batch.log_append_time_ms = result.log_append_time_ms
                lane.written(batch)
                self._delivered(batch)
            elif batch.done:  # its time was over before its answer came
                lane.forget(batch)
            else:
                self._refused(lane, batch, result, nodes)

    def _refused(self, lane: Lane, batch: ProducerBatch, result: PartitionProduceResponse, nodes: list[Node]) -> None:
        code = result.error_code
        if code in PERHAPS_WRITTEN:
            batch.in_doubt = True
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.can_split and self._may_go_on():
            self._accumulator.replace_by_halves(lane, batch)
            return
        problem = error_for(code, f"{lane.topic}-{lane.partition}", result.error_message)
        if self._settings.enable_idempotence and code in OUT_OF_SEQUENCE and not lane.is_oldest(batch):
            # One before it is missing because it is on its way again: this one follows.
            self._retry_or_fail(lane, batch, problem)
            return
        if self._identity is not None and code in OUT_OF_SEQUENCE | OUT_OF_EPOCH:
            if lane.gap is None:
                logger.error("%s: the broker has lost what it knew of this producer, and perhaps records", problem)
            is_last = batch.attempts > self._settings.retries
            if is_last or not lane.refused_as_out_of_order(batch):
                lane.forget(batch)
                lane.failed(batch)
                self._finish(lane, batch, doubtful(batch) if batch.in_doubt else problem)
            else:
                lane.problem = problem
                self._accumulator.active[lane] = None
                self._pause(lane)
            return
        if not is_retriable(code):
            batch.record_errors = record_errors(batch, result, problem)
            lane.forget(batch)
            lane.failed(batch)
            self._finish(lane, batch, problem)
            return
        leader = result.current_leader
        news = leader is not None and self._cluster.learn_leader(
            lane.topic, lane.partition, leader.leader_id, leader.leader_epoch, nodes
        )
        if code in MOVED and not news:
            self._cluster.stale()
        self._retry_or_fail(lane, batch, problem, pause=not news)

    def _retry_or_fail(self, lane: Lane, batch: ProducerBatch, problem: SemelError, *, pause: bool = True) -> None:
        if batch.done:  # its time was over before its answer came
            lane.forget(batch)
            return
        if problem.code not in OUT_OF_SEQUENCE or lane.is_oldest(batch):  # else the one before it tells more
            lane.problem = problem
        is_late = self._is_late(batch, asyncio.get_running_loop().time())
        if is_late or batch.attempts > self._settings.retries or not self._may_go_on():
            lane.forget(batch)
            lane.failed(batch)
            self._finish(lane, batch, self._too_late(lane, batch) if is_late else problem)
            return
        self.counts.retried_batches += 1
        lane.put_back(batch)
        self._accumulator.active[lane] = None
        if pause:
            self._pause(lane)

    def _may_go_on(self) -> bool:
        return self._transactions is None or self._transactions.may_retry()

    def _pause(self, lane: Lane) -> None:
        lane.failures += 1
        now_s = asyncio.get_running_loop().time()
        lane.not_before_s = max(lane.not_before_s, now_s + self._backoff.delay_s(lane.failures))

    def _finish(self, lane: Lane, batch: ProducerBatch, error: SemelError) -> None:
        if self._transactions is not None:
            error = self._transactions.batch_failed(batch, error)
        self.counts.failed_records += batch.count
        self._accumulator.active[lane] = None  # a gap may have to be dealt with
        self._accumulator.finish(batch, error)
        self.wake()

    # -- ending

    async def wait_for_answers(self) -> None:
        """Returns when nothing is under way."""
        while self._shipments:
            await asyncio.wait([shipment.landed for shipment in self._shipments])

    async def close(self) -> None:
        self._is_closed = True
        self._cluster.changed.remove(self.wake)
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        for shipment in self._shipments:
            shipment.unwatch()
        if self._identity is not None:
            await self._identity.close()

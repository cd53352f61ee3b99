"""The transactions of one producer: their state, and the talk with both coordinators.

    UNINITIALISED -init-> READY -begin-> OPEN -commit-> COMMITTING -ended-> READY
                                          OPEN -abort-> ABORTING   -ended-> READY
                       OPEN, COMMITTING -fail-> FAILED -abort-> ABORTING
                                  any state -break-> BROKEN

First generation: a partition joins the transaction (AddPartitionsToTxn) before anything is sent to it. Second
generation (KIP-890): it joins with its first batch, and every end raises the epoch, so that nothing late can touch the
next transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TypeVar

from semel.client.cluster import Cluster
from semel.client.coordinators import CoordinatorKind, Coordinators
from semel.client.errors import (
    AbortTransactionError,
    AuthenticationFailed,
    IllegalState,
    NotAuthorised,
    ProducerFenced,
    ProducerFencedOrTimedOut,
    RestartProducerError,
    SemelError,
    TransactionFailed,
    TransactionTimedOut,
    UnsupportedByBroker,
    error_for,
)
from semel.client.metadata import TopicPartition
from semel.client.producer import transaction_requests as requests
from semel.client.producer.batch import NOBODY, Identity, ProducerBatch
from semel.client.producer.lane import Lane
from semel.client.producer.settings import ProducerSettings
from semel.client.values import GroupIdentity, OffsetAndMetadata
from semel.host.api import Host
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request, Response
from semel.wire.spec.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from semel.wire.spec.add_partitions_to_txn import AddPartitionsToTxnResponse
from semel.wire.spec.end_txn import EndTxnRequest, EndTxnResponse
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.produce import ProduceRequest
from semel.wire.spec.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

R = TypeVar("R", bound=Response)

_SECOND_GENERATION: dict[type[Request], int] = {ProduceRequest: 12, EndTxnRequest: 5, TxnOffsetCommitRequest: 5}
"""The first versions of the second generation. All must be served, and the feature be on."""
_FEATURE = "transaction.version"
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_FATAL_RIGHTS = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class State(Enum):
    UNINITIALISED = auto()
    READY = auto()
    OPEN = auto()
    COMMITTING = auto()
    ABORTING = auto()
    FAILED = auto()
    BROKEN = auto()


class Event(Enum):
    INIT = "init_transactions"
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"
    ENDED = "the end"
    FAIL = "a failure"


MOVES: dict[tuple[State, Event], State] = {
    (State.UNINITIALISED, Event.INIT): State.READY,
    (State.READY, Event.BEGIN): State.OPEN,
    (State.OPEN, Event.COMMIT): State.COMMITTING,
    (State.COMMITTING, Event.COMMIT): State.COMMITTING,  # its end is not known: asked again
    (State.COMMITTING, Event.ENDED): State.READY,
    (State.OPEN, Event.ABORT): State.ABORTING,
    (State.FAILED, Event.ABORT): State.ABORTING,
    (State.ABORTING, Event.ABORT): State.ABORTING,
    (State.ABORTING, Event.ENDED): State.READY,
    (State.OPEN, Event.FAIL): State.FAILED,
    (State.COMMITTING, Event.FAIL): State.FAILED,
    (State.FAILED, Event.FAIL): State.FAILED,
    (State.ABORTING, Event.FAIL): State.ABORTING,
}
_HINTS = {
    State.UNINITIALISED: "call init_transactions first",
    State.READY: "no transaction is open: call begin first",
    State.OPEN: "a transaction is open: commit or abort it first",
    State.COMMITTING: "the outcome of the commit is not known: call commit again",
    State.ABORTING: "the abort has not ended: call abort again",
    State.FAILED: "the transaction has failed: abort it",
}


class Transactions:
    """`changed` is called when something may be sent that could not be before."""

    def __init__(self, host: Host, cluster: Cluster, settings: ProducerSettings) -> None:
        self.state = State.UNINITIALISED
        self.identity: Identity = NOBODY
        self.is_second_generation = False
        self.changed: Callable[[], None] = lambda: None
        self._clock = host.clock
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self._settings = settings
        self._id = settings.transactional_id or ""
        self._failure: SemelError | None = None
        self._joined: set[tuple[str, int]] = set()
        self._to_join: dict[tuple[str, int], None] = {}
        self._joining: asyncio.Task[None] | None = None
        self._is_started = False
        self._started_ms = 0
        self._needs_new_epoch = False

    # -- state

    def move(self, event: Event) -> None:
        """The one way to another state. Raises when the call does not fit, with what is allowed now."""
        target = MOVES.get((self.state, event))
        if target is None:
            if self.refusal is not None:
                raise self.refusal
            raise IllegalState(f"{event.value} is not possible now: {_HINTS[self.state]}")
        self.state = target

    def check_may_write(self) -> None:
        """Before a record or an offset is taken for the transaction."""
        if self.state is not State.OPEN:
            if self.refusal is not None:
                raise self.refusal
            raise IllegalState(f"nothing can be sent now: {_HINTS[self.state]}")

    def fail(self, error: SemelError) -> SemelError:
        """Something of this transaction could not be done. Returns the error as the program should see it."""
        error = self._by_time(error)
        if _breaks(error):
            if self.state is not State.BROKEN:
                self.state = State.BROKEN
                self._failure = error
        elif (self.state, Event.FAIL) in MOVES:
            if self.state is not State.FAILED:
                self._failure = error
            self.move(Event.FAIL)
            self._needs_new_epoch = True
        self.changed()
        return error

    @property
    def refusal(self) -> SemelError | None:
        """Why nothing of this transaction will be sent any more; None if it may be."""
        if self.state is State.FAILED:
            return self._as_failed()
        return self._failure if self.state is State.BROKEN else None

    def require_new_epoch(self) -> None:
        """Sequences were given out that will never be written: the next transaction needs other names."""
        self._needs_new_epoch = True

    def _as_failed(self) -> SemelError:
        failure = self._failure
        if isinstance(failure, AbortTransactionError):
            return failure
        why = failure.text if failure is not None else "its cause is not known"
        failed = TransactionFailed(f"an earlier call in this transaction has failed: {why}")
        failed.__cause__ = failure
        return failed

    def _by_time(self, error: SemelError) -> SemelError:
        """Brokers do not all say whether a producer was fenced or was too slow; the time that has passed may tell."""
        elapsed_ms = self._elapsed_ms()
        is_late = elapsed_ms >= self._settings.transaction_timeout_ms
        text = f"{self._id!r}: {elapsed_ms / 1000:g} s after the transaction began: {error.text}"
        if error.code == ErrorCode.TRANSACTION_ABORTABLE and is_late:
            return TransactionTimedOut(text, code=error.code)
        if error.code in _FENCED:
            kind = ProducerFencedOrTimedOut if is_late else ProducerFenced
            return error if type(error) is kind else kind(text, code=error.code)
        return error

    def _elapsed_ms(self) -> int:
        return self._clock.monotonic_ms() - self._started_ms if self._is_started else 0

    # -- what the sender asks

    @property
    def produce_versions(self) -> tuple[int, int]:
        """The least and the newest version of Produce for this generation."""
        first = _SECOND_GENERATION[ProduceRequest]
        return (first, 1 << 15) if self.is_second_generation else (0, first - 1)

    def may_send(self, lane: Lane) -> bool:
        """Whether the lane's batches may go. In the first generation its partition has to join before."""
        if self.state not in (State.OPEN, State.COMMITTING):
            return False
        partition = (lane.topic, lane.partition)
        if self.is_second_generation or partition in self._joined:
            return True
        self._start()
        self._to_join[partition] = None
        if self._joining is None:
            self._joining = asyncio.get_running_loop().create_task(self._join())
        return False

    def sending(self) -> None:
        """Batches of this transaction are on their way: from now on there is something to end."""
        self._start()

    def may_retry(self) -> bool:
        """Whether a batch that failed may be sent again; not when the transaction cannot be committed any more."""
        return self.state in (State.OPEN, State.COMMITTING)

    def batch_failed(self, batch: ProducerBatch, error: SemelError) -> SemelError:
        return self.fail(error) if self.state is not State.ABORTING else error

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._started_ms = self._clock.monotonic_ms()

    # -- the coordinator

    async def init(self) -> None:
        """Takes over the transactional id: fences older producers, and ends what they left open."""
        if self.state is not State.UNINITIALISED:
            self.move(Event.INIT)
        await self._init(NOBODY)
        node_id = await self._coordinators.find(CoordinatorKind.TRANSACTION, self._id)
        connection = await self._cluster.nodes.connect(node_id)
        self.is_second_generation = connection.features.get(_FEATURE, 0) >= 2 and all(
            connection.versions.get(request.api_key, (0, -1))[1] >= version
            for request, version in _SECOND_GENERATION.items()
        )
        self.move(Event.INIT)

    async def _init(self, claimed: Identity) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            producer_id=claimed.producer_id,
            producer_epoch=claimed.epoch,
        )
        try:
            answer = await self._ask(request, InitProducerIdResponse, lambda answer: answer.error_code, at_most=5)
        except SemelError as error:
            raise self._break_by(error) from error
        if answer.error_code != ErrorCode.NONE:
            raise self._break_by(error_for(answer.error_code, f"initialising the transactional id {self._id!r}"))
        self.identity = Identity(answer.producer_id, answer.producer_epoch)

    def _break_by(self, error: SemelError) -> SemelError:
        return self.fail(error) if _breaks(error) else error

    def begin(self) -> None:
        self.move(Event.BEGIN)
        self._is_started = False
        self._failure = None
        self._needs_new_epoch = False
        self._joined.clear()
        self._to_join.clear()

    async def _join(self) -> None:
        try:
            while self._to_join and self.may_retry():
                partitions = list(self._to_join)
                request = requests.add_partitions(self._id, self.identity, partitions)
                answer = await self._ask(request, AddPartitionsToTxnResponse, requests.add_partitions_code, at_most=3)
                code = requests.add_partitions_code(answer)
                if code != ErrorCode.NONE:
                    raise error_for(code, f"adding partitions to the transaction of {self._id!r}")
                self._joined.update(partitions)
                for partition in partitions:
                    del self._to_join[partition]
        except SemelError as error:
            self.fail(error)
        finally:
            self._joining = None
        self.changed()

    async def add_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupIdentity) -> None:
        """The offsets count when, and only if, the transaction commits."""
        self._start()
        try:
            if not self.is_second_generation:
                joined = AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=self.identity.producer_id,
                    producer_epoch=self.identity.epoch,
                    group_id=group.group_id,
                )
                answer = await self._ask(joined, AddOffsetsToTxnResponse, lambda answer: answer.error_code)
                if answer.error_code != ErrorCode.NONE:
                    raise error_for(answer.error_code, f"adding the offsets of group {group.group_id!r}")
            await self._commit_offsets(offsets, group)
        except SemelError as error:
            seen = self.fail(error)
            raise seen from error if seen is not error else None

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupIdentity) -> None:
        first = _SECOND_GENERATION[TxnOffsetCommitRequest]
        answer = await self._coordinators.call(
            CoordinatorKind.GROUP,
            group.group_id,
            requests.commit_offsets(self._id, self.identity, group, offsets),
            TxnOffsetCommitResponse,
            code_of=requests.commit_offsets_code,
            timeout_s=self._settings.max_block_s,
            at_least=first if self.is_second_generation else 3 if group.member_id else 0,
            at_most=first if self.is_second_generation else first - 1,
        )
        code = requests.commit_offsets_code(answer)
        if code != ErrorCode.NONE:
            raise error_for(code, f"committing offsets of group {group.group_id!r} in a transaction")

    async def end(self, is_commit: bool) -> None:
        """EndTxn, after everything of the transaction is written. A TimedOut leaves its outcome open: call again."""
        joining = self._joining
        if joining is not None:
            await asyncio.wait([joining])
        if not is_commit and self._elapsed_ms() >= self._settings.transaction_timeout_ms:
            # The broker may have aborted it before us, and raised the epoch: nobody has told us yet.
            self._needs_new_epoch = True
        if self._is_started:
            await self._end(is_commit)
        if self._needs_new_epoch and not self.is_second_generation:
            await self._init(self.identity)
        self.move(Event.ENDED)
        self._is_started = False

    async def _end(self, is_commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=is_commit,
        )
        first = _SECOND_GENERATION[EndTxnRequest]
        try:
            answer = await self._ask(
                request,
                EndTxnResponse,
                lambda answer: answer.error_code,
                at_least=first if self.is_second_generation else 0,
                at_most=1 << 15 if self.is_second_generation else first - 1,
            )
        except SemelError as error:
            raise self._break_by(error) from error
        if answer.error_code == ErrorCode.INVALID_TXN_STATE and not is_commit:
            # No partition has joined: there is nothing to abort, but what is under way must not join later.
            await self._init(self.identity)
            self._needs_new_epoch = False
        elif answer.error_code != ErrorCode.NONE:
            raise self.fail(error_for(answer.error_code, f"{'committing' if is_commit else 'aborting'} {self._id!r}"))
        elif answer.producer_id >= 0:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)

    async def _ask(
        self,
        request: Request,
        response: type[R],
        code_of: Callable[[R], int],
        *,
        at_least: int = 0,
        at_most: int = 1 << 15,
    ) -> R:
        return await self._coordinators.call(
            CoordinatorKind.TRANSACTION,
            self._id,
            request,
            response,
            code_of=code_of,
            timeout_s=self._settings.max_block_s,
            at_least=at_least,
            at_most=at_most,
        )

    async def close(self) -> None:
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)


def _breaks(error: SemelError) -> bool:
    """Whether no transaction of this producer can succeed any more."""
    if isinstance(error, NotAuthorised):
        return error.code in _FATAL_RIGHTS
    return isinstance(error, RestartProducerError | AuthenticationFailed | UnsupportedByBroker)

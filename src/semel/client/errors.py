"""What can go wrong for a program that uses the client, sorted by what the program can do about it.

Four kinds (KIP-1050): a `RetriableError` may be gone when the same call is made again; an `AbortTransactionError` ends
the transaction that is open, and the producer goes on after `abort`; a `RestartProducerError` ends this producer, and a
new one takes its place; a `FatalError` stays until somebody changes the program, its settings or its rights. Every text
says what happened and what to do next.
"""

from __future__ import annotations

from semel.client.metadata import TopicPartition
from semel.peer import errors as peer
from semel.peer.errors import code_text as code_text
from semel.wire.errors import ErrorCode


class SemelError(peer.PeerError):
    """Any error of the client. `text` is without the advice; `code` is the broker's error code, if it gave one."""

    advice = ""
    """What to do next. An error that tells of another one may have the advice of that."""

    def __init__(self, text: str, *, code: int | None = None, advice: str | None = None) -> None:
        if advice is not None:
            self.advice = advice
        super().__init__(f"{text} ({self.advice})" if self.advice else text)
        self.text = text
        self.code = code


class RetriableError(SemelError):
    """May succeed when tried again; the client has tried for as long as its settings allow."""

    advice = "try again later, or allow more time"


class AbortTransactionError(SemelError):
    """The open transaction cannot be committed. Outside of a transaction: this record was not written, others go on."""

    advice = "abort this transaction and begin another"


class RestartProducerError(SemelError):
    """This producer can write no more; a new one with the same settings can, and aborts what this one left open."""

    advice = "close this producer and start a new one"


class FatalError(SemelError):
    """Will happen again until the program, its settings or its rights are changed."""


# -- the connection


class Disconnected(RetriableError, peer.Unreachable):
    """The connection ended before the answer came: the request may have been served, or not."""


class TimedOut(RetriableError, peer.TimedOut):
    """No answer within the time that the settings allow."""


class AuthenticationFailed(FatalError, peer.AuthenticationFailed):
    """The broker did not accept who we say we are, or we did not accept the broker."""

    advice = "check user, password and certificates"


class UnsupportedByBroker(FatalError, peer.Unsupported):
    """The broker is too old, or too new, for what was asked."""


# -- the program


class BadSetting(FatalError, peer.BadSetting):
    """A setting is unknown, its value is not allowed, or it contradicts another one."""


class IllegalState(FatalError):
    """The call does not fit what was called before: see its text."""


class Closed(IllegalState, peer.Closed):
    """The producer, consumer or admin was closed."""


class BadRecord(AbortTransactionError, ValueError):
    """A record that cannot be sent as it is: wrong type, or its serializer failed."""

    advice = "mend the record; in a transaction, abort it or leave the record out"


class RecordTooLarge(BadRecord):
    """A record is larger than `max.request.size`, or than the topic allows."""

    advice = "make the record smaller, or raise max.request.size and the topic's max.message.bytes"


class RefusedWithOthers(AbortTransactionError):
    """Other records of the same batch were refused, and so this one was not written: nothing is wrong with it."""

    advice = "send this record again; in a transaction, abort it"


class BufferFull(RetriableError):
    """`buffer.memory` stayed full for `max.block.ms`."""

    advice = "send slower, raise buffer.memory or max.block.ms, or see why the broker does not keep up"


class UnknownTopic(RetriableError):
    """The topic or the partition did not appear within `max.block.ms`."""

    advice = "create the topic, or check its name"


class StorageFailed(RetriableError):
    """The broker could not write to its disk, or read from it: most often the disk is full. The text says more."""

    advice = "free space on the broker's disk, or see the broker's log for what is wrong with it; then try again"


# -- the producer


class DeliveryTimedOut(TimedOut):
    """`delivery.timeout.ms` has passed; the text says why the last attempt failed. If the record was sent before, it
    may have been written, or not."""


class ProducerFenced(RestartProducerError):
    """A newer producer with the same transactional id has taken over."""

    advice = "close this producer; only the newest one with this transactional id may write"


class ProducerFencedOrTimedOut(ProducerFenced):
    """Either a newer producer has taken over, or the transaction took too long: this broker does not say which."""

    advice = "close this producer; start a new one if no other has taken its place"


class TransactionalIdExpired(RestartProducerError):
    """The broker has forgotten the transactional id, which was idle for longer than it keeps such ids."""


class TransactionTimedOut(AbortTransactionError):
    """The transaction took longer than `transaction.timeout.ms`, and the broker has aborted it."""

    advice = "abort this transaction and begin another; make it shorter or raise transaction.timeout.ms"


class OutOfOrderSequence(AbortTransactionError):
    """Records before this one are missing in the log: they failed, or their acknowledgement was lost with them."""


class TransactionFailed(AbortTransactionError):
    """An earlier call has failed, so that this transaction can only be aborted. `__cause__` says why."""


class CommitFailed(AbortTransactionError):
    """The consumer is no longer the member of the group that it was: its partitions may be read by others."""

    advice = "do not count what was read as done: poll again, and go on with what is assigned then"


# -- the consumer


class PositionError(FatalError):
    """A partition that cannot be read on from where it is; other partitions go on. `seek` makes it go on too."""

    def __init__(
        self, text: str, *, partition: TopicPartition | None = None, offset: int = -1, code: int | None = None
    ) -> None:
        super().__init__(text, code=code)
        self.partition = partition
        self.offset = offset
        """Where it stands, or -1 if nowhere."""


class OffsetOutOfRange(PositionError):
    """The log does not hold the position any more, and `auto.offset.reset` is none."""

    advice = "seek to an offset that exists, or set auto.offset.reset"


class LogTruncated(OffsetOutOfRange):
    """Records that were read are gone: the log was cut back below the position. It went on at `diverging_offset`."""

    diverging_offset = -1


class NoOffset(PositionError):
    """No offset was committed for the partition, and `auto.offset.reset` is none."""

    advice = "seek to an offset, or set auto.offset.reset"


class CorruptRecords(PositionError):
    """A batch that was fetched does not match its checksum or cannot be read. Behind it `next_offset` follows."""

    advice = "seek past it to go on without it"
    next_offset = -1


class DeserializerFailed(PositionError):
    """The program's deserializer raised: `__cause__` is its error. The record is the one at `offset`."""

    advice = "mend the deserializer, or seek past the record"


class FencedInstance(FatalError):
    """Another consumer has joined with the same group.instance.id."""

    advice = "give every member an id of its own"


# -- the admin


class TopicExists(FatalError):
    """A topic of this name is there already."""

    advice = "use it, or choose another name"


class UnknownGroup(FatalError):
    """There is no such group."""

    advice = "check its name: a group that nobody uses is forgotten"


class GroupNotEmpty(FatalError):
    """The group has members, and this can only be done without."""

    advice = "stop its members first"


# -- any of them


class NotAuthorised(FatalError):
    """The broker does not allow this to us."""

    advice = "ask for the right, or use another account"


class BrokerRefused(FatalError):
    """The broker refused the request: `code` and the text say why."""


_CLASSES: dict[int, type[SemelError]] = {
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLarge,
    ErrorCode.RECORD_LIST_TOO_LARGE: RecordTooLarge,
    ErrorCode.INVALID_RECORD: BadRecord,
    ErrorCode.INVALID_TIMESTAMP: BadRecord,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: BadRecord,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequence,
    ErrorCode.UNKNOWN_PRODUCER_ID: OutOfOrderSequence,
    ErrorCode.TRANSACTION_ABORTABLE: AbortTransactionError,
    ErrorCode.PRODUCER_FENCED: ProducerFenced,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFencedOrTimedOut,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: TransactionalIdExpired,
    ErrorCode.INVALID_TXN_STATE: RestartProducerError,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: RestartProducerError,
    ErrorCode.ILLEGAL_GENERATION: CommitFailed,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitFailed,
    ErrorCode.STALE_MEMBER_EPOCH: CommitFailed,
    ErrorCode.REBALANCE_IN_PROGRESS: CommitFailed,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstance,
    ErrorCode.FENCED_MEMBER_EPOCH: CommitFailed,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicExists,
    ErrorCode.GROUP_ID_NOT_FOUND: UnknownGroup,
    ErrorCode.NON_EMPTY_GROUP: GroupNotEmpty,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: GroupNotEmpty,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: NotAuthorised,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: NotAuthorised,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NotAuthorised,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NotAuthorised,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationFailed,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedByBroker,
    ErrorCode.KAFKA_STORAGE_ERROR: StorageFailed,
    ErrorCode.REQUEST_TIMED_OUT: TimedOut,
    ErrorCode.NETWORK_EXCEPTION: Disconnected,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopic,
}


def is_retriable(code: int) -> bool:
    """Whether the same request may succeed later. Codes that we do not know are not tried again."""
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False


def error_for(code: int, doing: str, message: str | None = None) -> SemelError:
    """The error for a broker's code. `doing` says what was tried, `message` is the broker's own text."""
    text = f"{doing}: {code_text(code)}" + (f": {message}" if message else "")
    kind = _CLASSES.get(code)
    if kind is None:
        kind = RetriableError if is_retriable(code) else BrokerRefused
    return kind(text, code=code)

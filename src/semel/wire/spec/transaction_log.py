"""The records of `__transaction_state`: one key per transactional id, whose newest value is its state."""

from semel.wire.schema import I8, I16, I32, I64, Array, Message, Str, Struct, field


class TransactionLogKey(Message, versions="0"):
    transactional_id: Str = ""


class TransactionPartitions(Struct):
    topic: Str = ""
    partition_ids: Array[I32] = ()


class TransactionLogValue(Message, versions="0-1", flexible=1):
    producer_id: I64 = -1
    previous_producer_id: I64 = field(default=-1, since=1, tag=0)
    next_producer_id: I64 = field(default=-1, since=1, tag=1)
    producer_epoch: I16 = -1
    transaction_timeout_ms: I32 = 0
    transaction_status: I8 = 0
    transaction_partitions: Array[TransactionPartitions] | None = None
    transaction_last_update_timestamp_ms: I64 = -1
    transaction_start_timestamp_ms: I64 = -1
    client_transaction_version: I16 = field(default=0, since=1, tag=2)
    # Ours, and skipped by Kafka's tools as any unknown tag: which epoch's transaction ran out of time, and which epoch
    # its own producer asked to be raised.
    timed_out_epoch: I16 = field(default=-1, since=1, tag=100)
    raised_from_epoch: I16 = field(default=-1, since=1, tag=101)

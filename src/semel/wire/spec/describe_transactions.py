"""DescribeTransactions (key 65): state and partitions of transactions."""

from semel.wire.schema import I16, I32, I64, Array, Request, Response, Str, Struct


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible=0):
    transactional_ids: Array[Str] = ()


class TransactionTopic(Struct):
    topic: Str = ""
    partitions: Array[I32] = ()


class DescribedTransaction(Struct):
    error_code: I16 = 0
    transactional_id: Str = ""
    transaction_state: Str = ""
    transaction_timeout_ms: I32 = 0
    transaction_start_time_ms: I64 = 0
    producer_id: I64 = 0
    producer_epoch: I16 = 0
    topics: Array[TransactionTopic] = ()


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    transaction_states: Array[DescribedTransaction] = ()

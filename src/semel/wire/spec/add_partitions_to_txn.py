"""AddPartitionsToTxn (key 24): adds partitions to a transaction.

Clients use versions 0 to 3; from 4 on brokers verify many transactions at once.
"""

from semel.wire.schema import I16, I32, I64, Array, Bool, Request, Response, Str, Struct, field


class AddPartitionsToTxnTopic(Struct):
    name: Str = ""
    partitions: Array[I32] = ()


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: Str = ""
    producer_id: I64 = 0
    producer_epoch: I16 = 0
    verify_only: Bool = False
    topics: Array[AddPartitionsToTxnTopic] = ()


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible=3):
    transactions: Array[AddPartitionsToTxnTransaction] = field(default=(), since=4)
    v3_and_below_transactional_id: Str = field(default="", until=3)
    v3_and_below_producer_id: I64 = field(default=0, until=3)
    v3_and_below_producer_epoch: I16 = field(default=0, until=3)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = field(default=(), until=3)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: I32 = 0
    partition_error_code: I16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: Str = ""
    results_by_partition: Array[AddPartitionsToTxnPartitionResult] = ()


class AddPartitionsToTxnResult(Struct):
    transactional_id: Str = ""
    topic_results: Array[AddPartitionsToTxnTopicResult] = ()


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible=3):
    throttle_time_ms: I32 = 0
    error_code: I16 = field(default=0, since=4)
    results_by_transaction: Array[AddPartitionsToTxnResult] = field(default=(), since=4)
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = field(default=(), until=3)

"""DescribeProducers (key 61): the producers that a partition remembers, with their epochs and open transactions."""

from semel.wire.schema import I16, I32, I64, Array, Request, Response, Str, Struct


class DescribeProducersTopic(Struct):
    name: Str = ""
    partition_indexes: Array[I32] = ()


class DescribeProducersRequest(Request, key=61, versions="0", flexible=0):
    topics: Array[DescribeProducersTopic] = ()


class ProducerState(Struct):
    producer_id: I64 = 0
    producer_epoch: I32 = 0
    last_sequence: I32 = -1
    last_timestamp: I64 = -1
    coordinator_epoch: I32 = 0
    current_txn_start_offset: I64 = -1


class DescribeProducersPartitionResult(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
    active_producers: Array[ProducerState] = ()


class DescribeProducersTopicResult(Struct):
    name: Str = ""
    partitions: Array[DescribeProducersPartitionResult] = ()


class DescribeProducersResponse(Response, key=61, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    topics: Array[DescribeProducersTopicResult] = ()

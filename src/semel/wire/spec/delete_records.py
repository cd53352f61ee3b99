"""DeleteRecords (key 21): deletes the records below an offset by raising the log start offset."""

from semel.wire.schema import I16, I32, I64, Array, Request, Response, Str, Struct


class DeleteRecordsPartition(Struct):
    partition_index: I32 = 0
    offset: I64 = 0


class DeleteRecordsTopic(Struct):
    name: Str = ""
    partitions: Array[DeleteRecordsPartition] = ()


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible=2):
    topics: Array[DeleteRecordsTopic] = ()
    timeout_ms: I32 = 0


class DeleteRecordsPartitionResult(Struct):
    partition_index: I32 = 0
    low_watermark: I64 = 0
    error_code: I16 = 0


class DeleteRecordsTopicResult(Struct):
    name: Str = ""
    partitions: Array[DeleteRecordsPartitionResult] = ()


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible=2):
    throttle_time_ms: I32 = 0
    topics: Array[DeleteRecordsTopicResult] = ()

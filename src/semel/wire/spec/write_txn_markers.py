"""WriteTxnMarkers (key 27): the transaction coordinator has commit or abort markers written to partitions."""

from semel.wire.schema import I8, I16, I32, I64, Array, Bool, Request, Response, Str, Struct, field


class WritableTxnMarkerTopic(Struct):
    name: Str = ""
    partition_indexes: Array[I32] = ()


class WritableTxnMarker(Struct):
    producer_id: I64 = 0
    producer_epoch: I16 = 0
    transaction_result: Bool = False
    topics: Array[WritableTxnMarkerTopic] = ()
    coordinator_epoch: I32 = 0
    transaction_version: I8 = field(default=0, since=2)


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible=1):
    markers: Array[WritableTxnMarker] = ()


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: Str = ""
    partitions: Array[WritableTxnMarkerPartitionResult] = ()


class WritableTxnMarkerResult(Struct):
    producer_id: I64 = 0
    topics: Array[WritableTxnMarkerTopicResult] = ()


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible=1):
    markers: Array[WritableTxnMarkerResult] = ()

"""AssignReplicasToDirs (key 73): a broker says in which of its directories its replicas are (KIP-858)."""

from semel.wire.schema import I16, I32, I64, NO_UUID, Array, Request, Response, Struct, Uuid


class AssignedPartition(Struct):
    partition_index: I32 = 0


class AssignedTopic(Struct):
    topic_id: Uuid = NO_UUID
    partitions: Array[AssignedPartition] = ()


class AssignedDirectory(Struct):
    id: Uuid = NO_UUID
    topics: Array[AssignedTopic] = ()


class AssignReplicasToDirsRequest(Request, key=73, versions="0", flexible=0):
    broker_id: I32 = 0
    broker_epoch: I64 = -1
    directories: Array[AssignedDirectory] = ()


class AssignedPartitionResult(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0


class AssignedTopicResult(Struct):
    topic_id: Uuid = NO_UUID
    partitions: Array[AssignedPartitionResult] = ()


class AssignedDirectoryResult(Struct):
    id: Uuid = NO_UUID
    topics: Array[AssignedTopicResult] = ()


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    directories: Array[AssignedDirectoryResult] = ()

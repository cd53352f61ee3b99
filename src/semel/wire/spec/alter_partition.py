"""AlterPartition (key 56): a partition leader asks the controller to change the in-sync replicas."""

from semel.wire.schema import I8, I16, I32, I64, NO_UUID, Array, Request, Response, Struct, Uuid, field


class IsrMember(Struct):
    broker_id: I32 = 0
    broker_epoch: I64 = -1


class AlterPartitionRequestPartition(Struct):
    partition_index: I32 = 0
    leader_epoch: I32 = 0
    new_isr: Array[I32] = field(default=(), until=2)
    new_isr_with_epochs: Array[IsrMember] = field(default=(), since=3)
    leader_recovery_state: I8 = 0
    partition_epoch: I32 = 0


class AlterPartitionRequestTopic(Struct):
    topic_id: Uuid = NO_UUID
    partitions: Array[AlterPartitionRequestPartition] = ()


class AlterPartitionRequest(Request, key=56, versions="2-3", flexible=0):
    broker_id: I32 = 0
    broker_epoch: I64 = -1
    topics: Array[AlterPartitionRequestTopic] = ()


class AlterPartitionResponsePartition(Struct):
    partition_index: I32 = 0
    error_code: I16 = 0
    leader_id: I32 = 0
    leader_epoch: I32 = 0
    isr: Array[I32] = ()
    leader_recovery_state: I8 = 0
    partition_epoch: I32 = 0


class AlterPartitionResponseTopic(Struct):
    topic_id: Uuid = NO_UUID
    partitions: Array[AlterPartitionResponsePartition] = ()


class AlterPartitionResponse(Response, key=56, versions="2-3", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    topics: Array[AlterPartitionResponseTopic] = ()

"""The APIs this package knows: their keys, versions and flexible versions, without loading their descriptions.

A request names its API by key, and the header's form depends on the key and the version; so the table must be at hand
before any description is. The ranges are those that can be encoded and decoded; which of them a node serves it decides.
"""

from importlib import import_module
from typing import NamedTuple, cast

from semel.wire.errors import WireError
from semel.wire.schema import NEVER, Request, Response


class Api(NamedTuple):
    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    module: str


API: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, "Produce", 3, 13, 9, "produce"),
        Api(1, "Fetch", 4, 18, 12, "fetch"),
        Api(2, "ListOffsets", 1, 11, 6, "list_offsets"),
        Api(3, "Metadata", 0, 13, 9, "metadata"),
        Api(8, "OffsetCommit", 2, 10, 8, "offset_commit"),
        Api(9, "OffsetFetch", 1, 10, 6, "offset_fetch"),
        Api(10, "FindCoordinator", 0, 6, 3, "find_coordinator"),
        Api(11, "JoinGroup", 0, 9, 6, "join_group"),
        Api(12, "Heartbeat", 0, 4, 4, "heartbeat"),
        Api(13, "LeaveGroup", 0, 5, 4, "leave_group"),
        Api(14, "SyncGroup", 0, 5, 4, "sync_group"),
        Api(15, "DescribeGroups", 0, 6, 5, "describe_groups"),
        Api(16, "ListGroups", 0, 5, 3, "list_groups"),
        Api(17, "SaslHandshake", 0, 1, NEVER, "sasl_handshake"),
        Api(18, "ApiVersions", 0, 5, 3, "api_versions"),
        Api(19, "CreateTopics", 2, 7, 5, "create_topics"),
        Api(20, "DeleteTopics", 1, 6, 4, "delete_topics"),
        Api(21, "DeleteRecords", 0, 2, 2, "delete_records"),
        Api(22, "InitProducerId", 0, 6, 2, "init_producer_id"),
        Api(23, "OffsetForLeaderEpoch", 2, 4, 4, "offset_for_leader_epoch"),
        Api(24, "AddPartitionsToTxn", 0, 5, 3, "add_partitions_to_txn"),
        Api(25, "AddOffsetsToTxn", 0, 4, 3, "add_offsets_to_txn"),
        Api(26, "EndTxn", 0, 5, 3, "end_txn"),
        Api(27, "WriteTxnMarkers", 1, 2, 1, "write_txn_markers"),
        Api(28, "TxnOffsetCommit", 0, 6, 3, "txn_offset_commit"),
        Api(29, "DescribeAcls", 1, 3, 2, "describe_acls"),
        Api(30, "CreateAcls", 1, 3, 2, "create_acls"),
        Api(31, "DeleteAcls", 1, 3, 2, "delete_acls"),
        Api(32, "DescribeConfigs", 1, 4, 4, "describe_configs"),
        Api(33, "AlterConfigs", 0, 2, 2, "alter_configs"),
        Api(35, "DescribeLogDirs", 1, 5, 2, "describe_log_dirs"),
        Api(36, "SaslAuthenticate", 0, 2, 2, "sasl_authenticate"),
        Api(37, "CreatePartitions", 0, 3, 2, "create_partitions"),
        Api(42, "DeleteGroups", 0, 3, 2, "delete_groups"),
        Api(43, "ElectLeaders", 0, 2, 2, "elect_leaders"),
        Api(44, "IncrementalAlterConfigs", 0, 1, 1, "incremental_alter_configs"),
        Api(45, "AlterPartitionReassignments", 0, 1, 0, "alter_partition_reassignments"),
        Api(46, "ListPartitionReassignments", 0, 0, 0, "list_partition_reassignments"),
        Api(47, "OffsetDelete", 0, 0, NEVER, "offset_delete"),
        Api(48, "DescribeClientQuotas", 0, 1, 1, "describe_client_quotas"),
        Api(49, "AlterClientQuotas", 0, 1, 1, "alter_client_quotas"),
        Api(50, "DescribeUserScramCredentials", 0, 0, 0, "describe_user_scram_credentials"),
        Api(51, "AlterUserScramCredentials", 0, 0, 0, "alter_user_scram_credentials"),
        Api(52, "Vote", 0, 2, 0, "vote"),
        Api(53, "BeginQuorumEpoch", 0, 1, 1, "begin_quorum_epoch"),
        Api(54, "EndQuorumEpoch", 0, 1, 1, "end_quorum_epoch"),
        Api(55, "DescribeQuorum", 0, 2, 0, "describe_quorum"),
        Api(56, "AlterPartition", 2, 3, 0, "alter_partition"),
        Api(57, "UpdateFeatures", 0, 2, 0, "update_features"),
        Api(58, "Envelope", 0, 0, 0, "envelope"),
        Api(59, "FetchSnapshot", 0, 1, 0, "fetch_snapshot"),
        Api(60, "DescribeCluster", 0, 2, 0, "describe_cluster"),
        Api(61, "DescribeProducers", 0, 0, 0, "describe_producers"),
        Api(62, "BrokerRegistration", 0, 4, 0, "broker_registration"),
        Api(63, "BrokerHeartbeat", 0, 2, 0, "broker_heartbeat"),
        Api(64, "UnregisterBroker", 0, 0, 0, "unregister_broker"),
        Api(65, "DescribeTransactions", 0, 0, 0, "describe_transactions"),
        Api(66, "ListTransactions", 0, 2, 0, "list_transactions"),
        Api(67, "AllocateProducerIds", 0, 0, 0, "allocate_producer_ids"),
        Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, "consumer_group_heartbeat"),
        Api(69, "ConsumerGroupDescribe", 0, 1, 0, "consumer_group_describe"),
        Api(70, "ControllerRegistration", 0, 0, 0, "controller_registration"),
        Api(73, "AssignReplicasToDirs", 0, 0, 0, "assign_replicas_to_dirs"),
        Api(74, "ListConfigResources", 0, 1, 0, "list_config_resources"),
        Api(75, "DescribeTopicPartitions", 0, 0, 0, "describe_topic_partitions"),
        Api(80, "AddRaftVoter", 0, 1, 0, "add_raft_voter"),
        Api(81, "RemoveRaftVoter", 0, 0, 0, "remove_raft_voter"),
        Api(82, "UpdateRaftVoter", 0, 0, 0, "update_raft_voter"),
    )
}

_requests: dict[int, type[Request]] = {}
_responses: dict[int, type[Response]] = {}


def request_class(key: int) -> type[Request]:
    """The class of an API's requests. WireError for a key that is not in the table."""
    try:
        return _requests[key]
    except KeyError:
        return _requests.setdefault(key, cast(type[Request], _load(key, "Request")))


def response_class(key: int) -> type[Response]:
    """The class of an API's responses. WireError for a key that is not in the table."""
    try:
        return _responses[key]
    except KeyError:
        return _responses.setdefault(key, cast(type[Response], _load(key, "Response")))


def _load(key: int, direction: str) -> object:
    if key not in API:
        raise WireError(f"unknown API key {key}")
    api = API[key]
    return getattr(import_module(f"semel.wire.spec.{api.module}"), api.name + direction)

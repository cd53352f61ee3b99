"""The one error for malformed bytes, and the error codes that Kafka's answers carry.

`WireError` is raised whenever bytes do not follow the protocol or a value does not fit it. `ErrorCode` is what one peer
says to another inside a well-formed answer. Unknown codes are passed on as plain integers, so fields hold `int`.
"""

from enum import IntEnum
from typing import TYPE_CHECKING


class WireError(ValueError):
    """Bytes that do not follow the protocol, or a value that the protocol cannot carry."""


class UnknownApi(WireError):
    """A request for an API that is not in the table; carries the part of its header that every version shares."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"unknown API key {api_key} (version {api_version})")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


RETRY = True
GIVE_UP = False


class ErrorCode(IntEnum):
    """Kafka's error codes: `retriable` says whether the same request may succeed later, `text` what went wrong."""

    retriable: bool
    text: str

    # A type checker would take this for the constructor, and refuse ErrorCode(35).
    if not TYPE_CHECKING:

        def __new__(cls, code: int, retriable: bool, text: str) -> "ErrorCode":
            member = int.__new__(cls, code)
            member._value_ = code
            member.retriable = retriable
            member.text = text
            return member

    UNKNOWN_SERVER_ERROR = -1, GIVE_UP, "the server failed in a way it did not expect"
    NONE = 0, GIVE_UP, "no error"
    OFFSET_OUT_OF_RANGE = 1, GIVE_UP, "the log does not hold this offset"
    CORRUPT_MESSAGE = 2, RETRY, "a record batch is damaged: its checksum, its size or its key is wrong"
    UNKNOWN_TOPIC_OR_PARTITION = 3, RETRY, "this broker has no such topic or partition"
    INVALID_FETCH_SIZE = 4, GIVE_UP, "the fetch size asked for makes no sense"
    LEADER_NOT_AVAILABLE = 5, RETRY, "the partition has no leader at the moment"
    NOT_LEADER_OR_FOLLOWER = 6, RETRY, "this broker does not lead, or does not hold, the partition"
    REQUEST_TIMED_OUT = 7, RETRY, "the request took longer than it was allowed to"
    BROKER_NOT_AVAILABLE = 8, GIVE_UP, "the broker is not there"
    REPLICA_NOT_AVAILABLE = 9, RETRY, "the replica is not there"
    MESSAGE_TOO_LARGE = 10, GIVE_UP, "a record batch is larger than the topic allows"
    STALE_CONTROLLER_EPOCH = 11, GIVE_UP, "another broker has become the controller"
    OFFSET_METADATA_TOO_LARGE = 12, GIVE_UP, "the metadata string of an offset commit is too long"
    NETWORK_EXCEPTION = 13, RETRY, "the connection was lost before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, RETRY, "the coordinator is still reading its state"
    COORDINATOR_NOT_AVAILABLE = 15, RETRY, "the coordinator is not there at the moment"
    NOT_COORDINATOR = 16, RETRY, "this broker is not the coordinator"
    INVALID_TOPIC_EXCEPTION = 17, GIVE_UP, "the topic's name or the operation on it is not allowed"
    RECORD_LIST_TOO_LARGE = 18, GIVE_UP, "a record batch is larger than a segment"
    NOT_ENOUGH_REPLICAS = 19, RETRY, "too few replicas are in sync, nothing was written"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, RETRY, "written, but to fewer replicas in sync than required"
    INVALID_REQUIRED_ACKS = 21, GIVE_UP, "acks must be 0, 1 or -1"
    ILLEGAL_GENERATION = 22, GIVE_UP, "the group has moved on to another generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, GIVE_UP, "the member shares no protocol with the rest of the group"
    INVALID_GROUP_ID = 24, GIVE_UP, "the group id is not valid"
    UNKNOWN_MEMBER_ID = 25, GIVE_UP, "the group has no such member"
    INVALID_SESSION_TIMEOUT = 26, GIVE_UP, "the session timeout is outside of what the broker allows"
    REBALANCE_IN_PROGRESS = 27, GIVE_UP, "the group is rebalancing: join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, GIVE_UP, "the offsets to commit take too much room"
    TOPIC_AUTHORIZATION_FAILED = 29, GIVE_UP, "not allowed to do this with the topic"
    GROUP_AUTHORIZATION_FAILED = 30, GIVE_UP, "not allowed to do this with the group"
    CLUSTER_AUTHORIZATION_FAILED = 31, GIVE_UP, "not allowed to do this with the cluster"
    INVALID_TIMESTAMP = 32, GIVE_UP, "a record's timestamp is outside of what the topic accepts"
    UNSUPPORTED_SASL_MECHANISM = 33, GIVE_UP, "the broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, GIVE_UP, "the request does not fit the state of the authentication"
    UNSUPPORTED_VERSION = 35, GIVE_UP, "the broker does not serve this version of the API"
    TOPIC_ALREADY_EXISTS = 36, GIVE_UP, "a topic of this name is already there"
    INVALID_PARTITIONS = 37, GIVE_UP, "the number of partitions is not allowed"
    INVALID_REPLICATION_FACTOR = 38, GIVE_UP, "the replication factor is below 1 or above the number of brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, GIVE_UP, "the assignment of replicas to brokers is not valid"
    INVALID_CONFIG = 40, GIVE_UP, "a setting is unknown or its value is not allowed"
    NOT_CONTROLLER = 41, RETRY, "this broker is not the controller"
    INVALID_REQUEST = 42, GIVE_UP, "the request contradicts itself or the protocol"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, GIVE_UP, "the log's record format does not allow this"
    POLICY_VIOLATION = 44, GIVE_UP, "a policy of the broker forbids this"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, GIVE_UP, "a sequence number is not the next one of its producer"
    DUPLICATE_SEQUENCE_NUMBER = 46, GIVE_UP, "a batch with this sequence number was written before"
    INVALID_PRODUCER_EPOCH = 47, GIVE_UP, "the producer's epoch is not the current one"
    INVALID_TXN_STATE = 48, GIVE_UP, "the transaction's state does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 49, GIVE_UP, "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, GIVE_UP, "the transaction timeout is longer than the broker allows"
    CONCURRENT_TRANSACTIONS = 51, RETRY, "the transaction is busy with another operation"
    TRANSACTION_COORDINATOR_FENCED = 52, GIVE_UP, "a newer transaction coordinator has taken over"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, GIVE_UP, "not allowed to use the transactional id"
    SECURITY_DISABLED = 54, GIVE_UP, "security is switched off"
    OPERATION_NOT_ATTEMPTED = 55, GIVE_UP, "another part of the same request failed, this one was not tried"
    KAFKA_STORAGE_ERROR = 56, RETRY, "the broker could not read or write its log: its disk may be full or broken"
    LOG_DIR_NOT_FOUND = 57, GIVE_UP, "the broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, GIVE_UP, "authentication failed"
    UNKNOWN_PRODUCER_ID = 59, GIVE_UP, "the partition knows nothing of this producer id"
    REASSIGNMENT_IN_PROGRESS = 60, GIVE_UP, "the partition is being moved"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, GIVE_UP, "delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, GIVE_UP, "no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, GIVE_UP, "neither owner nor renewer of the delegation token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, GIVE_UP, "delegation tokens cannot be handled on this kind of connection"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, GIVE_UP, "not allowed to do this with the delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, GIVE_UP, "the delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, GIVE_UP, "this type of principal is not known"
    NON_EMPTY_GROUP = 68, GIVE_UP, "the group still has members"
    GROUP_ID_NOT_FOUND = 69, GIVE_UP, "no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, RETRY, "no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, RETRY, "the fetch session's epoch is not the expected one"
    LISTENER_NOT_FOUND = 72, RETRY, "the leader has no listener of the kind that was asked"
    TOPIC_DELETION_DISABLED = 73, GIVE_UP, "deleting topics is switched off"
    FENCED_LEADER_EPOCH = 74, RETRY, "the request's leader epoch is older than the broker's"
    UNKNOWN_LEADER_EPOCH = 75, RETRY, "the request's leader epoch is newer than the broker's"
    UNSUPPORTED_COMPRESSION_TYPE = 76, GIVE_UP, "the client's version cannot read this compression"
    STALE_BROKER_EPOCH = 77, GIVE_UP, "the broker has registered again since"
    OFFSET_NOT_AVAILABLE = 78, RETRY, "a new leader does not know its high watermark yet"
    MEMBER_ID_REQUIRED = 79, GIVE_UP, "join again with the member id given in the answer"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, RETRY, "the preferred leader is not there"
    GROUP_MAX_SIZE_REACHED = 81, GIVE_UP, "the group is full"
    FENCED_INSTANCE_ID = 82, GIVE_UP, "another member has taken over this instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, RETRY, "no replica that may lead is there"
    ELECTION_NOT_NEEDED = 84, RETRY, "the partition needs no election"
    NO_REASSIGNMENT_IN_PROGRESS = 85, GIVE_UP, "the partition is not being moved"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, GIVE_UP, "the group still reads the topic"
    INVALID_RECORD = 87, GIVE_UP, "a record is not valid"
    UNSTABLE_OFFSET_COMMIT = 88, RETRY, "an open transaction still holds offsets of this partition"
    THROTTLING_QUOTA_EXCEEDED = 89, RETRY, "a quota is used up"
    PRODUCER_FENCED = 90, GIVE_UP, "a newer producer has taken over the transactional id"
    RESOURCE_NOT_FOUND = 91, GIVE_UP, "no such resource"
    DUPLICATE_RESOURCE = 92, GIVE_UP, "the request names a resource twice"
    UNACCEPTABLE_CREDENTIAL = 93, GIVE_UP, "the credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, GIVE_UP, "sender or receiver is not among the voters"
    INVALID_UPDATE_VERSION = 95, GIVE_UP, "the version to update to is not valid"
    FEATURE_UPDATE_FAILED = 96, GIVE_UP, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, GIVE_UP, "the principal of a forwarded request cannot be read"
    SNAPSHOT_NOT_FOUND = 98, GIVE_UP, "no such snapshot"
    POSITION_OUT_OF_RANGE = 99, GIVE_UP, "the position lies outside of the snapshot"
    UNKNOWN_TOPIC_ID = 100, RETRY, "this broker has no topic with this id"
    DUPLICATE_BROKER_REGISTRATION = 101, GIVE_UP, "another broker uses this broker id"
    BROKER_ID_NOT_REGISTERED = 102, GIVE_UP, "no broker has registered with this id"
    INCONSISTENT_TOPIC_ID = 103, RETRY, "the topic id does not match that of the log"
    INCONSISTENT_CLUSTER_ID = 104, GIVE_UP, "the cluster id is that of another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, GIVE_UP, "no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, RETRY, "the fetch session mixes topics with and without ids"
    INELIGIBLE_REPLICA = 107, GIVE_UP, "a replica of the new ISR may not be in it"
    NEW_LEADER_ELECTED = 108, GIVE_UP, "the partition was changed and has a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, GIVE_UP, "the offset has moved to tiered storage"
    FENCED_MEMBER_EPOCH = 110, GIVE_UP, "the member was fenced: give up all partitions and join again"
    UNRELEASED_INSTANCE_ID = 111, GIVE_UP, "another member still holds this instance id"
    UNSUPPORTED_ASSIGNOR = 112, GIVE_UP, "the group does not support this assignor"
    STALE_MEMBER_EPOCH = 113, GIVE_UP, "the member's epoch is old: retry after the next heartbeat"
    MISMATCHED_ENDPOINT_TYPE = 114, GIVE_UP, "the request went to the wrong kind of endpoint"
    UNSUPPORTED_ENDPOINT_TYPE = 115, GIVE_UP, "this kind of endpoint is not supported"
    UNKNOWN_CONTROLLER_ID = 116, GIVE_UP, "no controller has this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, GIVE_UP, "the telemetry subscription is not known or old"
    TELEMETRY_TOO_LARGE = 118, GIVE_UP, "the telemetry is larger than the broker accepts"
    INVALID_REGISTRATION = 119, GIVE_UP, "the controller refused the registration"
    TRANSACTION_ABORTABLE = 120, GIVE_UP, "the transaction cannot go on: abort it and begin another"
    INVALID_RECORD_STATE = 121, GIVE_UP, "the record's delivery state does not allow this acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, RETRY, "no such share session"
    INVALID_SHARE_SESSION_EPOCH = 123, RETRY, "the share session's epoch is not the expected one"
    FENCED_STATE_EPOCH = 124, GIVE_UP, "the share group's state epoch does not match"
    INVALID_VOTER_KEY = 125, GIVE_UP, "the voter key is not that of the receiver"
    DUPLICATE_VOTER = 126, GIVE_UP, "the voter is already among the voters"
    VOTER_NOT_FOUND = 127, GIVE_UP, "the voter is not among the voters"
    INVALID_REGULAR_EXPRESSION = 128, GIVE_UP, "the regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, GIVE_UP, "the client's metadata is too old: start again from the bootstrap servers"
    STREAMS_INVALID_TOPOLOGY = 130, GIVE_UP, "the streams topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, GIVE_UP, "the streams topology's epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, GIVE_UP, "the streams topology's epoch is old"
    SHARE_SESSION_LIMIT_REACHED = 133, RETRY, "too many share sessions"

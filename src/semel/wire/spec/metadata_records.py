"""The records of the metadata log `__cluster_metadata-0`, in Kafka's own form: those that a controller needs.

The value of each log record is a frame: frame version, record key and record version as unsigned varints, then the
body, which is flexible in every version. A change to the cluster is a list of such records.
"""

from typing import ClassVar

from semel.wire.codec import decoder, encode
from semel.wire.errors import WireError
from semel.wire.primitives import Buffer, decode_uvarint, encode_uvarint
from semel.wire.schema import (
    F64,
    I8,
    I16,
    I32,
    I64,
    NO_UUID,
    U16,
    Array,
    Bool,
    Bytes,
    Message,
    Str,
    Struct,
    Uuid,
    field,
)

FRAME_VERSION = 1
NO_LEADER = -1
NO_LEADER_CHANGE = -2

_record_classes: dict[int, type["MetadataRecord"]] = {}


class MetadataRecord(Message):
    """A record of the metadata log, which names its type by a key."""

    record_key: ClassVar[int]

    def __init_subclass__(cls, key: int, versions: str) -> None:
        super().__init_subclass__(versions=versions, flexible=0)
        cls.record_key = key
        _record_classes[key] = cls


class BrokerEndpoint(Struct):
    name: Str = ""
    host: Str = ""
    port: U16 = 0
    security_protocol: I16 = 0


class BrokerFeature(Struct):
    name: Str = ""
    min_supported_version: I16 = 0
    max_supported_version: I16 = 0


class RegisterBrokerRecord(MetadataRecord, key=0, versions="0-4"):
    """A broker has started and joined the cluster, fenced until it has caught up."""

    broker_id: I32 = 0
    is_migrating_zk_broker: Bool = field(default=False, since=2)
    incarnation_id: Uuid = NO_UUID
    broker_epoch: I64 = 0
    end_points: Array[BrokerEndpoint] = ()
    features: Array[BrokerFeature] = ()
    rack: Str | None = None
    fenced: Bool = True
    in_controlled_shutdown: Bool = field(default=False, since=1)
    log_dirs: Array[Uuid] = field(default=(), since=3, tag=0)
    cordoned_log_dirs: Array[Uuid] | None = field(default=None, since=4, tag=1)


class UnregisterBrokerRecord(MetadataRecord, key=1, versions="0"):
    """A broker has left the cluster for good."""

    broker_id: I32 = 0
    broker_epoch: I64 = 0


class TopicRecord(MetadataRecord, key=2, versions="0"):
    """A topic has been created; its partitions follow."""

    name: Str = ""
    topic_id: Uuid = NO_UUID


class PartitionRecord(MetadataRecord, key=3, versions="0-2"):
    """A partition with all of its state. Directories came with KIP-858, eligible leader replicas with KIP-966."""

    partition_id: I32 = -1
    topic_id: Uuid = NO_UUID
    replicas: Array[I32] = ()
    isr: Array[I32] = ()
    removing_replicas: Array[I32] = ()
    adding_replicas: Array[I32] = ()
    leader: I32 = NO_LEADER
    leader_recovery_state: I8 = field(default=0, tag=0)
    leader_epoch: I32 = -1
    partition_epoch: I32 = -1
    directories: Array[Uuid] = field(default=(), since=1)
    eligible_leader_replicas: Array[I32] | None = field(default=None, since=2, tag=1)
    last_known_elr: Array[I32] | None = field(default=None, since=2, tag=2)


class ConfigRecord(MetadataRecord, key=4, versions="0"):
    """A setting of a resource; a null value removes it."""

    resource_type: I8 = 0
    resource_name: Str = ""
    name: Str = ""
    value: Str | None = None


class PartitionChangeRecord(MetadataRecord, key=5, versions="0-2"):
    """What has changed in a partition: null, NO_LEADER_CHANGE and a recovery state of -1 stand for "as before"."""

    partition_id: I32 = -1
    topic_id: Uuid = NO_UUID
    isr: Array[I32] | None = field(default=None, tag=0)
    leader: I32 = field(default=NO_LEADER_CHANGE, tag=1)
    replicas: Array[I32] | None = field(default=None, tag=2)
    removing_replicas: Array[I32] | None = field(default=None, tag=3)
    adding_replicas: Array[I32] | None = field(default=None, tag=4)
    leader_recovery_state: I8 = field(default=-1, tag=5)
    directories: Array[Uuid] | None = field(default=None, since=1, tag=8)
    eligible_leader_replicas: Array[I32] | None = field(default=None, since=2, tag=6)
    last_known_elr: Array[I32] | None = field(default=None, since=2, tag=7)


class FenceBrokerRecord(MetadataRecord, key=7, versions="0"):
    """A broker may lead no partition until it is unfenced. Newer logs say so with BrokerRegistrationChangeRecord."""

    id: I32 = 0
    epoch: I64 = 0


class UnfenceBrokerRecord(MetadataRecord, key=8, versions="0"):
    """A fenced broker may lead again. Newer logs say so with BrokerRegistrationChangeRecord."""

    id: I32 = 0
    epoch: I64 = 0


class RemoveTopicRecord(MetadataRecord, key=9, versions="0"):
    """A topic has been deleted, with all of its partitions."""

    topic_id: Uuid = NO_UUID


class DelegationTokenRecord(MetadataRecord, key=10, versions="0"):
    """A token has been given out, or its expiry has changed."""

    owner: Str = ""
    requester: Str = ""
    renewers: Array[Str] = ()
    issue_timestamp: I64 = 0
    max_timestamp: I64 = 0
    expiration_timestamp: I64 = 0
    token_id: Str = ""


class UserScramCredentialRecord(MetadataRecord, key=11, versions="0"):
    """What a user's password is checked against."""

    name: Str = ""
    mechanism: I8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: I32 = 0


class FeatureLevelRecord(MetadataRecord, key=12, versions="0"):
    """The finalized level of a feature; 0 means that the feature is off."""

    name: Str = ""
    feature_level: I16 = 0


class QuotaEntityRecord(Struct):
    entity_type: Str = ""
    entity_name: Str | None = None


class ClientQuotaRecord(MetadataRecord, key=14, versions="0"):
    """A quota of a user, a client id or an address; a null name is the default of its type."""

    entity: Array[QuotaEntityRecord] = ()
    key: Str = ""
    value: F64 = 0.0
    remove: Bool = False


class ProducerIdsRecord(MetadataRecord, key=15, versions="0"):
    """A block of producer ids has been given to a broker; the next block begins at `next_producer_id`."""

    broker_id: I32 = 0
    broker_epoch: I64 = -1
    next_producer_id: I64 = 0


class BrokerRegistrationChangeRecord(MetadataRecord, key=17, versions="0-3"):
    """A broker's state has changed: 1 for fenced or stopping, -1 for unfenced, 0 for as before."""

    broker_id: I32 = 0
    broker_epoch: I64 = 0
    fenced: I8 = field(default=0, tag=0)
    in_controlled_shutdown: I8 = field(default=0, since=1, tag=1)
    log_dirs: Array[Uuid] = field(default=(), since=2, tag=2)
    cordoned_log_dirs: Array[Uuid] | None = field(default=None, since=3, tag=3)


class AccessControlEntryRecord(MetadataRecord, key=18, versions="0"):
    """One rule of the authoriser, named by its id."""

    id: Uuid = NO_UUID
    resource_type: I8 = 0
    resource_name: Str = ""
    pattern_type: I8 = 0
    principal: Str = ""
    host: Str = ""
    operation: I8 = 0
    permission_type: I8 = 0


class RemoveAccessControlEntryRecord(MetadataRecord, key=19, versions="0"):
    """A rule of the authoriser is gone."""

    id: Uuid = NO_UUID


class NoOpRecord(MetadataRecord, key=20, versions="0"):
    """Changes nothing; written so that the log moves on."""


class ZkMigrationStateRecord(MetadataRecord, key=21, versions="0"):
    """Left over from the migration of old clusters; it changes nothing."""

    zk_migration_state: I8 = 0


class RemoveUserScramCredentialRecord(MetadataRecord, key=22, versions="0"):
    """A user cannot log in by this mechanism any more."""

    name: Str = ""
    mechanism: I8 = 0


class BeginTransactionRecord(MetadataRecord, key=23, versions="0"):
    """The records that follow are held back until the transaction ends."""

    name: Str | None = field(default=None, tag=0)


class EndTransactionRecord(MetadataRecord, key=24, versions="0"):
    """What was held back counts."""


class AbortTransactionRecord(MetadataRecord, key=25, versions="0"):
    """What was held back is dropped."""

    reason: Str | None = field(default=None, tag=0)


class RemoveDelegationTokenRecord(MetadataRecord, key=26, versions="0"):
    """A token is gone."""

    token_id: Str = ""


class RegisterControllerRecord(MetadataRecord, key=27, versions="0"):
    """A controller has started, with its endpoints and the features that it knows."""

    controller_id: I32 = 0
    incarnation_id: Uuid = NO_UUID
    zk_migration_ready: Bool = False
    end_points: Array[BrokerEndpoint] = ()
    features: Array[BrokerFeature] = ()


class ClearElrRecord(MetadataRecord, key=28, versions="0"):
    """The eligible leader replicas of a topic are forgotten; without a name, those of all topics."""

    topic_name: Str = ""


class UnregisterControllerRecord(MetadataRecord, key=29, versions="0"):
    """A controller has left the cluster for good."""

    controller_id: I32 = 0


def encode_metadata_record(record: MetadataRecord, version: int) -> bytes:
    """The value of a metadata log record."""
    frame = encode_uvarint(FRAME_VERSION) + encode_uvarint(record.record_key) + encode_uvarint(version)
    return frame + encode(record, version)


def decode_metadata_record(buffer: Buffer) -> MetadataRecord:
    """The record that fills `buffer`. WireError for a type or a version that is not described here."""
    frame_version, position = decode_uvarint(buffer, 0)
    if frame_version != FRAME_VERSION:
        raise WireError(f"a metadata record has frame version {frame_version}")
    key, position = decode_uvarint(buffer, position)
    version, position = decode_uvarint(buffer, position)
    cls = _record_classes.get(key)
    if cls is None:
        raise WireError(f"metadata records of type {key} are not known")
    record, end = decoder(cls, version)(buffer, position)
    if end != len(buffer):
        raise WireError(f"{cls.__name__} is followed by {len(buffer) - end} bytes too many")
    return record

"""The control records of a quorum's log, in Kafka's own form: who leads, who votes, where a snapshot begins and ends.

The key of a control record is its version and its type, each an int16; the value is one of these. In a snapshot the
first and the last record are control records, too.
"""

from semel.wire.schema import I16, I32, I64, NO_UUID, U16, Array, Message, Str, Struct, Uuid, field

LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, VOTERS = 2, 3, 4, 5, 6
"""Types of control records. 0 and 1 are the markers of transactions."""


class QuorumVoter(Struct):
    voter_id: I32 = 0
    voter_directory_id: Uuid = field(default=NO_UUID, since=1)


class LeaderChangeMessage(Message, versions="0-1", flexible=0):
    """A leader has begun its epoch."""

    version: I16 = 0
    leader_id: I32 = 0
    voters: Array[QuorumVoter] = ()
    granting_voters: Array[QuorumVoter] = ()


class SnapshotHeaderRecord(Message, versions="0", flexible=0):
    """A snapshot begins; the time is that of the last record that it stands for."""

    version: I16 = 0
    last_contained_log_timestamp: I64 = 0


class SnapshotFooterRecord(Message, versions="0", flexible=0):
    """A snapshot is whole."""

    version: I16 = 0


class KRaftVersionRecord(Message, versions="0", flexible=0):
    """How the quorum is made up: 0 for voters from the settings, 1 for voters from `VotersRecord`."""

    version: I16 = 0
    k_raft_version: I16 = 0


class VoterEndpoint(Struct):
    name: Str = ""
    host: Str = ""
    port: U16 = 0


class VoterVersions(Struct):
    min_supported_version: I16 = 0
    max_supported_version: I16 = 0


class Voter(Struct):
    voter_id: I32 = 0
    voter_directory_id: Uuid = NO_UUID
    endpoints: Array[VoterEndpoint] = ()
    k_raft_version_feature: VoterVersions = VoterVersions()


class VotersRecord(Message, versions="0", flexible=0):
    """All voters of the quorum, from here on."""

    version: I16 = 0
    voters: Array[Voter] = ()

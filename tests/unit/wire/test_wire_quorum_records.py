"""The control records of a quorum, byte by byte: Kafka writes and reads the same."""

from __future__ import annotations

import pytest

from semel.wire.codec import decode, encode
from semel.wire.schema import Message
from semel.wire.spec.quorum_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    QuorumVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
    VoterVersions,
)

DIRECTORY = bytes(range(16))


@pytest.mark.parametrize(
    ("message", "version", "encoded"),
    [
        (
            LeaderChangeMessage(leader_id=1, voters=[QuorumVoter(voter_id=1)], granting_voters=[]),
            0,
            b"\0\0" + b"\0\0\0\x01" + b"\x02\0\0\0\x01\0" + b"\x01" + b"\0",
        ),
        (
            LeaderChangeMessage(version=1, leader_id=2, voters=[QuorumVoter(voter_id=2, voter_directory_id=DIRECTORY)]),
            1,
            b"\0\x01" + b"\0\0\0\x02" + b"\x02\0\0\0\x02" + DIRECTORY + b"\0" + b"\x01" + b"\0",
        ),
        (SnapshotHeaderRecord(last_contained_log_timestamp=258), 0, b"\0\0" + b"\0\0\0\0\0\0\x01\x02" + b"\0"),
        (SnapshotFooterRecord(), 0, b"\0\0\0"),
        (KRaftVersionRecord(k_raft_version=1), 0, b"\0\0" + b"\0\x01" + b"\0"),
        (
            VotersRecord(
                voters=[
                    Voter(
                        voter_id=3,
                        voter_directory_id=DIRECTORY,
                        endpoints=[VoterEndpoint(name="C", host="h", port=65535)],
                        k_raft_version_feature=VoterVersions(max_supported_version=1),
                    )
                ]
            ),
            0,
            b"\0\0" + b"\x02\0\0\0\x03" + DIRECTORY + b"\x02\x02C\x02h\xff\xff\0" + b"\0\0\0\x01\0" + b"\0" + b"\0",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_a_control_record_is_these_bytes(message: Message, version: int, encoded: bytes) -> None:
    assert encode(message, version) == encoded
    assert decode(type(message), version, encoded) == message

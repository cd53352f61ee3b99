"""`quorum-state`, in Kafka's form: the newest epoch of the metadata log that this node knows of, and who leads in it.

It is on disk before anything is done in that epoch. So a leader that starts again never writes other records under an
epoch in which it has written before, whether these were durable or not.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from semel.host.api import Disk
from semel.log.errors import BrokenLog
from semel.log.types import Epoch
from semel.quorum.metadata_topic import NO_LEADER
from semel.wire.schema import NO_UUID

FILE_NAME = "quorum-state"
NO_VOTE = -1


class QuorumState(NamedTuple):
    """With voters that are fixed by settings (kraft.version 0)."""

    epoch: Epoch = 0
    leader_id: int = NO_LEADER
    voted_id: int = NO_VOTE
    voters: tuple[int, ...] = ()
    voted_directory_id: bytes = NO_UUID

    def encode(self) -> bytes:
        document = {
            "clusterId": "",
            "leaderId": self.leader_id,
            "leaderEpoch": self.epoch,
            "votedId": self.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in self.voters],
            "data_version": 0,
        }
        return json.dumps(document, separators=(",", ":")).encode()


def read_state(disk: Disk, directory: str) -> QuorumState | None:
    """None if there is no such file. Raises BrokenLog for one that is damaged: an epoch could be used twice."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    try:
        found = json.loads(disk.read_file(path))
        voters = tuple(int(voter["voterId"]) for voter in found.get("currentVoters", ()))
        return QuorumState(int(found["leaderEpoch"]), int(found["leaderId"]), int(found["votedId"]), voters)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenLog(
            f"{path} is damaged: if the other controllers of this cluster are there, remove it, with the directory "
            "around it; if this is the only one, remove the file alone"
        ) from error


def write_state_now(disk: Disk, directory: str, state: QuorumState) -> None:
    """Durable when it returns."""
    disk.replace_file_now(f"{directory}/{FILE_NAME}", state.encode())

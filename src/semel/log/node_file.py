"""What a node notes of its data directory as a whole: `semel-node`, at the root.

Of each partition that has files: whose it is, how far it was durable, where it begins. The checkpoints in Kafka's
format say that too, but have no checksums and no topic ids; they are written after this, and count when this does not.

It also ties everything that semel notes beside Kafka's files to the last time that semel had the directory. While a
node runs, the state is `running` and there is no mark of a clean stop. A clean stop leaves such a mark with the name of
the run in it, then the state `stopped`. Whoever else opens the directory takes that mark away, and leaves one of its
own if it stops cleanly: so another program has been here if a mark does not name our run, or is gone after we stopped.
Then a new token begins, and what carries the old one counts no more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from semel.log.checkpoints import TopicPartition
from semel.log.inventory import SmallFiles, checked_lines, with_checksum
from semel.log.types import Offset

FILE_NAME = "semel-node"
CLEAN_STOP = ".kafka_cleanshutdown"
RUNNING, STOPPED = "running", "stopped"
NO_BROKER_EPOCH = -1
_HEAD = "semel-node 1"
_NAMES_RUN = "semel-run "


class Noted(NamedTuple):
    """`recovery_point`: everything below it is durable."""

    topic_id: str
    recovery_point: Offset
    start_offset: Offset


@dataclass
class NodeFile:
    token: str
    run: str
    state: str = RUNNING
    previous_run: str = ""
    """The one before, which a mark may still name if this run came to an end before it took that away."""
    partitions: dict[TopicPartition, Noted] = field(default_factory=dict)

    def encode(self) -> bytes:
        return with_checksum([*self.head(), *partition_lines(self.partitions)])

    def head(self) -> list[str]:
        return [_HEAD, f"token {self.token}", f"run {self.run} {self.state} {self.previous_run}".rstrip()]

    def is_last_to_have_been_here(self, mark: bytes | None) -> bool:
        """Whether nobody else has opened the directory since this was written; `mark` is what the mark of a clean stop
        says, if there is one."""
        if mark is None:
            return self.state == RUNNING
        return named_run(mark) in {self.run, self.previous_run} - {""}


def partition_lines(partitions: dict[TopicPartition, Noted]) -> list[str]:
    return [
        f"partition {topic} {index} {one.topic_id} {one.recovery_point} {one.start_offset}"
        for (topic, index), one in partitions.items()
    ]


def read_node_file(disk: SmallFiles, root: str) -> NodeFile | None:
    """None: there is none, or it is damaged."""
    try:
        lines = checked_lines(disk.read_file(f"{root}/{FILE_NAME}"), _HEAD)
    except FileNotFoundError:
        return None
    if lines is None:
        return None
    found = NodeFile("", "")
    for line in lines:
        kind, *words = line.split(" ")
        if kind == "token":
            found.token = words[0]
        elif kind == "run":
            found.run, found.state, found.previous_run = (*words, "")[:3]
        elif kind == "partition":
            topic, index, topic_id, recovery_point, start_offset = words
            found.partitions[topic, int(index)] = Noted(topic_id, int(recovery_point), int(start_offset))
    return found


def clean_stop_mark(broker_epoch: int, run: str) -> bytes:
    """What Kafka writes, and reads, is its first line."""
    first_line = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    return first_line.encode() + f"\n{_NAMES_RUN}{run}\n".encode()


def named_run(mark: bytes) -> str:
    for line in mark.decode(errors="replace").splitlines():
        if line.startswith(_NAMES_RUN):
            return line.removeprefix(_NAMES_RUN)
    return ""


def broker_epoch_of(mark: bytes) -> int:
    try:
        return int(json.loads(mark.partition(b"\n")[0])["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH

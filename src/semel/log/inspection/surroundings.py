"""What the root of a data directory says of one partition: checkpoints, the mark of a clean stop, the topic's id."""

from __future__ import annotations

from dataclasses import dataclass

from semel.log.types import Offset


@dataclass(frozen=True)
class Surroundings:
    """None: not known. A partition's directory that was copied somewhere has no surroundings at all."""

    recovery_point: Offset | None = None
    start_offset: Offset | None = None
    cleaned_to: Offset | None = None
    was_clean: bool | None = None
    is_running: bool = False
    topic_id: str | None = None
    # Whether the metadata says that the topic is compacted.
    compacts: bool | None = None
    # Whether the metadata was read, and knows no such topic.
    is_stranger: bool = False
    # What inventories that count carry. Empty: none does.
    token: str = ""
    # Since it was last opened nothing can have been torn but the last write.
    is_same_boot: bool = False


ALONE = Surroundings()

"""What can be wrong with a history, by name, and what it means in one sentence. After Jepsen's Kafka workload."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """In the order in which they are told: what costs data first."""

    LOST_WRITE = "lost write"
    UNSEEN = "unseen"
    DUPLICATE = "duplicate"
    PHANTOM = "phantom"
    INCONSISTENT_OFFSET = "inconsistent offset"
    UNPLACED = "unplaced"
    ABORTED_READ = "aborted read"
    EARLY_READ = "read before commit"
    TORN = "torn transaction"
    UNFENCED = "unfenced"
    LOST_CONSUMPTION = "lost consumption"
    REPEATED_CONSUMPTION = "repeated consumption"
    POLL_SKIP = "skipped poll"
    POLL_BACK = "non-monotonic poll"
    INSIDE_POLL_SKIP = "skipped inside a poll"
    INSIDE_POLL_BACK = "non-monotonic inside a poll"
    SEND_BACK = "non-monotonic send"
    INSIDE_SEND_BACK = "non-monotonic send in a transaction"
    INSIDE_SEND_SKIP = "others between sends of a transaction"
    UNREADABLE = "unreadable"
    STUCK = "stuck"

    @property
    def meaning(self) -> str:
        return MEANINGS[self]


MEANINGS = {
    Kind.LOST_WRITE: "acknowledged, others behind it were read, but nobody ever reads it",
    Kind.UNSEEN: "acknowledged, but not there when everything was read to the end",
    Kind.DUPLICATE: "sent once, but it stands at two offsets",
    Kind.PHANTOM: "read, but nobody has sent it",
    Kind.INCONSISTENT_OFFSET: "one offset, two values",
    Kind.UNPLACED: "acknowledged without an offset: the broker did not remember where it is",
    Kind.ABORTED_READ: "a reader of committed data saw a record of a transaction that was never committed (G1a)",
    Kind.EARLY_READ: "a reader of committed data saw a record before anybody asked to commit it",
    Kind.TORN: "of one transaction a part can be read, and a part cannot",
    Kind.UNFENCED: "a producer committed after a newer one had taken its transactional id",
    Kind.LOST_CONSUMPTION: "a group went past a record that none of its members has handled",
    Kind.REPEATED_CONSUMPTION: "one record was handled twice, and both results can be read",
    Kind.POLL_SKIP: "a reader went past a record from one poll to the next",
    Kind.POLL_BACK: "a reader went back from one poll to the next",
    Kind.INSIDE_POLL_SKIP: "one poll went past a record",
    Kind.INSIDE_POLL_BACK: "one poll went back",
    Kind.SEND_BACK: "a later send of one producer stands before an earlier one",
    Kind.INSIDE_SEND_BACK: "in one transaction a later send stands before an earlier one",
    Kind.INSIDE_SEND_SKIP: "records of others stand between those of one transaction",
    Kind.UNREADABLE: "a reader was told that what it was to read is damaged or gone",
    Kind.STUCK: "everything has healed, but a reader does not get to the end",
}


class Anomaly(NamedTuple):
    """One thing that is wrong. `is_allowed`: the client's settings did not ask for better."""

    kind: Kind
    text: str
    is_allowed: bool = False

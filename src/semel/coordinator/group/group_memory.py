"""What the metadata of group members takes of the node's memory budget, and how much of it one group may have.

Members are kept for as long as they live, so each counts with all that it has brought: a new one, or new metadata, is
refused when its group has too much or the budget is full. What is read from a log is counted as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from semel.config import BrokerConfig
from semel.log.errors import Refused
from semel.rpc.budget import MemoryBudget, Owner
from semel.wire.errors import ErrorCode

# About what a member takes besides what it brings, and what a name of a protocol or a topic takes besides its letters.
MEMBER_BYTES = 1000
NAME_BYTES = 100
# A vote among the protocols costs as many steps as there are of them.
_MOST_PROTOCOLS = 100


class GroupMemory:
    def __init__(self, budget: MemoryBudget, config: Callable[[], BrokerConfig]) -> None:
        self._budget = budget
        self._config = config

    def check(self, group_id: str, group_bytes: int, more_bytes: int) -> None:
        """Whether a group that has so much may have more; raises Refused."""
        if more_bytes <= 0:
            return
        most = self._config().int("group.max.metadata.bytes")
        if group_bytes + more_bytes > most:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the members of {group_id!r} would have {group_bytes + more_bytes} bytes of metadata, "
                f"more than {most} (group.max.metadata.bytes)",
            )
        if not self._budget.has_room(more_bytes, Owner.GROUP):
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node has no memory left for metadata of groups")

    def count(self, more_bytes: int) -> None:
        """A group has so much more, or less."""
        if more_bytes > 0:
            self._budget.take_anyway(more_bytes, Owner.GROUP)
        else:
            self._budget.give_back(-more_bytes, Owner.GROUP)


def check_protocols(protocols: Collection[tuple[str, bytes]]) -> None:
    if len(protocols) > _MOST_PROTOCOLS:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"a member can have {_MOST_PROTOCOLS} protocols at most, not {len(protocols)}",
        )


def bytes_of_protocols(protocols: Collection[tuple[str, bytes]]) -> int:
    """What a member of a classic group takes."""
    return MEMBER_BYTES + sum(NAME_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def bytes_of_topics(names: Collection[str]) -> int:
    """What a member of a KIP-848 group takes."""
    return MEMBER_BYTES + sum(NAME_BYTES + len(name) for name in names)

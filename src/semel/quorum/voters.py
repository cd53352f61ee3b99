"""Who votes in the quorum of the metadata log: a set that is never changed, only replaced by another.

A voter is named by its node id and, since kraft.version 1, by the id of its metadata directory as well: a node whose
disk was replaced is another voter, because it has forgotten how it voted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from semel.wire.schema import NO_UUID

if TYPE_CHECKING:  # a node alone calls nobody
    from semel.peer.calls import HostPort

_NO_ENDPOINTS: Mapping[str, HostPort] = MappingProxyType({})


class ReplicaKey(NamedTuple):
    """A replica. A directory id of `NO_UUID` is one that is not known, as with voters that the settings name."""

    node_id: int
    directory_id: bytes = NO_UUID

    def may_be(self, other: ReplicaKey) -> bool:
        """Whether both can be the same replica: what is known of both is the same."""
        if self.node_id != other.node_id:
            return False
        return NO_UUID in (self.directory_id, other.directory_id) or self.directory_id == other.directory_id


class VoterNode(NamedTuple):
    """A voter, where it listens (by the names of the listeners), and which levels of kraft.version it knows."""

    key: ReplicaKey
    endpoints: Mapping[str, HostPort] = _NO_ENDPOINTS
    least_version: int = 0
    most_version: int = 0

    @property
    def node_id(self) -> int:
        return self.key.node_id

    def address(self, listener: str) -> HostPort | None:
        return self.endpoints.get(listener)


class VoterSet:
    """Voters by node id. Empty: this node does not know of any yet."""

    def __init__(self, voters: Iterable[VoterNode] = ()) -> None:
        self._voters = {voter.node_id: voter for voter in voters}

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.node_id)
        return voter is not None and voter.key.may_be(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VoterSet({list(self._voters.values())!r})"

    def get(self, node_id: int) -> VoterNode | None:
        return self._voters.get(node_id)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(sorted(self._voters))

    @property
    def majority(self) -> int:
        """How many voters are more than half of them."""
        return len(self._voters) // 2 + 1

    def is_only(self, key: ReplicaKey) -> bool:
        """Whether this replica is the one voter, which needs nobody to be elected."""
        return len(self._voters) == 1 and key in self

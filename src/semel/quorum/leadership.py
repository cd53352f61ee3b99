"""Who leads the metadata log, as far as this node knows, and where the controllers are that can be asked.

Every answer of a controller teaches: a higher epoch counts more than a lower one, and within an epoch there is one
leader. Everyone of this node that needs the active controller waits here until it is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from semel.config.listeners import Voter
from semel.log.errors import BrokenLog
from semel.log.types import Epoch
from semel.peer.calls import HostPort
from semel.quorum.metadata_topic import NO_LEADER

logger = logging.getLogger("semel.quorum")


class Leader(NamedTuple):
    node_id: int
    epoch: Epoch


class Leadership:
    """Controllers are named by their id; a bootstrap server, of which only the address is known, by a negative one."""

    def __init__(
        self,
        voters: Sequence[Voter],
        bootstrap_servers: Sequence[tuple[str, int]],
        epoch: Epoch,
        random: Random,
        own_id: int = NO_LEADER,
    ) -> None:
        """`own_id`: this node, which never asks itself."""
        self.epoch = epoch
        self._own_id = own_id
        self.leader_id = NO_LEADER
        self._random = random
        self._voters = {voter.node_id: HostPort(voter.host, voter.port) for voter in voters}
        servers = {-2 - number: HostPort(*server) for number, server in enumerate(bootstrap_servers)}
        self._servers = servers if not self._voters else {}
        self._told: dict[int, HostPort] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._silent = False  # the leader has not answered: others may know of a new one

    @property
    def voters(self) -> tuple[int, ...]:
        """Those that the settings name."""
        return tuple(self._voters)

    @property
    def addresses(self) -> Mapping[int, HostPort]:
        """What leaders were told to be at counts more than what the settings say."""
        return {**self._servers, **self._voters, **self._told}

    @property
    def leader(self) -> Leader | None:
        """None as long as it is not known, or its address is not."""
        is_known = self.leader_id != NO_LEADER and self.leader_id in self.addresses
        return Leader(self.leader_id, self.epoch) if is_known else None

    def learn(self, epoch: Epoch, leader_id: int, endpoints: Mapping[int, HostPort]) -> bool:
        """What another node says. Whether it is news; what is older than what is known here never is."""
        if epoch < self.epoch or epoch < 0:
            return False
        before = self.leader
        if epoch == self.epoch and self.leader_id not in (NO_LEADER, leader_id) and leader_id != NO_LEADER:
            raise BrokenLog(
                f"nodes {self.leader_id} and {leader_id} both lead the metadata log in epoch {epoch}: this cluster is "
                "broken"
            )
        if epoch > self.epoch or leader_id != NO_LEADER:
            self.epoch, self.leader_id = epoch, leader_id
        if leader_id in endpoints:
            self._told[leader_id] = endpoints[leader_id]
        return self._found(before)

    def moved(self, node_id: int, address: HostPort) -> None:
        """A leader says where it is reached."""
        before = self.leader
        self._told[node_id] = address
        self._found(before)

    def _found(self, before: Leader | None) -> bool:
        found = self.leader
        if found is None or found == before:
            return found != before
        logger.info("node %d leads the metadata log, epoch %d", found.node_id, found.epoch)
        self._silent = False
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        return True

    def answered(self, node_id: int) -> None:
        """Whoever it was: if that knows of no newer leader, the one that is known is asked next."""
        self._silent = False

    def did_not_answer(self, node_id: int) -> None:
        """A leader that is silent is asked in turn with the others, one of which may know of a new one."""
        self._silent = node_id == self.leader_id

    def to_ask(self) -> int:
        """Whom to ask for the log: the leader, if it is known and answers, else any other controller; `NO_LEADER` if
        there is none."""
        leader = self.leader
        others = [
            node_id
            for node_id in (*self._voters, *self._servers)
            if node_id != self._own_id and (leader is None or node_id != leader.node_id)
        ]
        if leader is not None and leader.node_id != self._own_id and (not self._silent or not others):
            return leader.node_id
        return self._random.choice(others) if others else NO_LEADER

    async def known(self) -> Leader:
        """Waits for a leader."""
        while (leader := self.leader) is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            finally:
                if future in self._waiting:
                    self._waiting.remove(future)
        return leader

"""What a node among others has: its replica of the metadata log, and a way to whichever controller is active.

A broker's replica follows and has no vote; that of a controller votes, and may lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from semel.broker.forwarding import Forwarder
from semel.broker.node_info import NodeInfo
from semel.broker.remote_controller import RemoteController
from semel.config import ListenerKind, NodeListener, Role
from semel.controller.metadata import Metadata
from semel.controller.metadata_term import MetadataTerm
from semel.host.api import Host
from semel.log.group_commit import GroupCommit
from semel.log.log import Log
from semel.peer.calls import Calls, HostPort
from semel.quorum.election import Timeouts
from semel.quorum.leadership import Leadership
from semel.quorum.quorum_replica import QuorumReplica
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.voters import ReplicaKey, VoterNode, VoterSet
from semel.rpc.slices import Slices
from semel.security.listeners import outgoing
from semel.wire.spec.metadata_records import MetadataRecord

T = TypeVar("T")

_CONNECT_S = 2.0
_RECONNECT_MOST_MS = 500


class QuorumPart:
    """`open`, then `start` when this node listens. What makes it impossible to follow the log is raised by
    `unless_impossible` while the node starts, and told to `on_broken` later."""

    def __init__(
        self,
        host: Host,
        node: NodeInfo,
        log: Log,
        on_broken: Callable[[BaseException], None],
        committed: Callable[[Sequence[MetadataRecord]], None],
        reloaded: Callable[[], None],
        on_term: Callable[[MetadataTerm | None], None],
        bound: Mapping[str, NodeListener],
        slices: Slices,
    ) -> None:
        config, layout = node.config, node.config.layout
        self._on_broken = on_broken
        self._is_raised = 0
        self._bound = bound
        self._is_controller = Role.CONTROLLER in layout.roles
        replicated = ReplicatedLog(host.disk, log, host.clock)
        self.leadership = Leadership(
            layout.voters, layout.bootstrap_servers, replicated.end_epoch, host.random, node.node_id
        )
        self.metadata = Metadata(
            host.disk, host.clock, replicated, committed, reloaded, on_broken, slices, on_term=on_term
        )
        to_controllers = layout.controller_names[0]
        secured = outgoing(config, to_controllers, "sasl.mechanism.controller.protocol", host.jobs)
        self._calls = [
            Calls(
                host,
                lambda: self.leadership.addresses,
                client_id=client_id,
                max_frame_bytes=config.int("socket.request.max.bytes"),
                connect_s=_CONNECT_S,
                reconnect_most_ms=_RECONNECT_MOST_MS,
                tls=secured.tls,
                login=secured.login,
            )
            for client_id in (
                f"raft-client-{node.node_id}",
                f"raft-client-{node.node_id}-votes",
                f"node-{node.node_id}-to-controller",
            )
        ]
        fetches, votes, to_controller = self._calls
        self.replica = QuorumReplica(
            node.cluster_id,
            ReplicaKey(node.node_id, node.directory_id),
            VoterSet(VoterNode(ReplicaKey(node_id)) for node_id in self._voter_ids(node)),
            replicated,
            GroupCommit(log, on_broken),
            self.metadata,
            self.leadership,
            fetches,
            votes,
            host.disk,
            host.clock,
            host.random,
            self._broke,
            timeouts=Timeouts(
                election_ms=config.int("controller.quorum.election.timeout.ms"),
                fetch_ms=config.int("controller.quorum.fetch.timeout.ms"),
                backoff_most_ms=config.int("controller.quorum.election.backoff.max.ms"),
                retry_ms=config.int("controller.quorum.retry.backoff.ms"),
            ),
            keeps=self._is_controller,
            endpoints=self._endpoints,
        )
        self.channel = RemoteController(
            host,
            node,
            self.leadership,
            to_controller,
            self.metadata.until,
            lambda topic: topic in self.metadata.committed.topics,
        )
        self.forwarder = Forwarder(self.channel)

    def _voter_ids(self, node: NodeInfo) -> list[int]:
        """A controller that names no voters is the only one."""
        named = [voter.node_id for voter in node.config.layout.voters]
        return named or ([node.node_id] if self._is_controller else [])

    def _endpoints(self) -> dict[str, HostPort]:
        """Where this controller is reached, by the names of its listeners."""
        return {
            one.name: HostPort(one.advertised_host or one.host, one.advertised_port)
            for one in self._bound.values()
            if ListenerKind.CONTROLLERS in one.kind
        }

    async def open(self) -> None:
        """Reads what the newest snapshot says. A broker may drop what is damaged: the controllers have it. What a
        voter has acknowledged may count on its copy. Raises what is damaged."""
        await self.metadata.open(may_drop=not self._is_controller)

    def start(self) -> None:
        self.replica.start()

    def _broke(self, error: BaseException) -> None:
        if not self._is_raised:
            self._on_broken(error)

    async def unless_impossible(self, work: Coroutine[Any, Any, T]) -> T:
        """Does the work, or raises WrongCluster or whatever it is that ends the following of the log meanwhile."""
        following = self.replica.following
        assert following is not None
        self._is_raised += 1
        task = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait([task, following], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                following.result()
            return await task
        finally:
            self._is_raised -= 1
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        await self.replica.stop()
        await self.metadata.close()
        for calls in self._calls:
            await calls.close()

    def current_offset(self) -> int:
        """The offset of the last record that the image has."""
        return self.metadata.next_offset - 1

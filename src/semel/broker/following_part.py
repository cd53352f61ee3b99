"""What a node has that does not lead the metadata log: it follows it, into a log and snapshots of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from semel.broker.forwarding import Forwarder
from semel.broker.node_info import NodeInfo
from semel.broker.remote_controller import RemoteController
from semel.controller.metadata import Metadata
from semel.host.api import Host
from semel.log.log import Log
from semel.peer.backoff import Backoff
from semel.peer.calls import Calls
from semel.quorum.leadership import Leadership
from semel.quorum.observer import Observer, Replica
from semel.quorum.replicated_log import ReplicatedLog
from semel.quorum.state_file import read_state
from semel.rpc.slices import Slices
from semel.wire.spec.metadata_records import MetadataRecord

T = TypeVar("T")

_RETRY_FIRST_MS, _RETRY_MOST_MS = 20, 1000
_CONNECT_S = 2.0
_RECONNECT_MOST_MS = 500


class FollowingPart:
    """`start` begins to follow. What makes that impossible is raised by `unless_impossible` while the node starts, and
    told to `on_broken` later."""

    def __init__(
        self,
        host: Host,
        node: NodeInfo,
        log: Log,
        on_broken: Callable[[BaseException], None],
        committed: Callable[[Sequence[MetadataRecord]], None],
        reloaded: Callable[[], None],
        slices: Slices,
    ) -> None:
        layout = node.config.layout
        self._on_broken = on_broken
        self._log = ReplicatedLog(host.disk, log, host.clock)
        state = read_state(host.disk, log.directory)
        epoch = max(self._log.end_epoch, 0 if state is None else state.epoch)
        self.leadership = Leadership(layout.voters, layout.bootstrap_servers, epoch, host.random)
        self.metadata = Metadata(host.disk, host.clock, self._log, committed, reloaded, on_broken, slices)
        self._calls = Calls(
            host,
            lambda: self.leadership.addresses,
            client_id=f"raft-client-{node.node_id}",
            max_frame_bytes=node.config.int("socket.request.max.bytes"),
            connect_s=_CONNECT_S,
            reconnect_most_ms=_RECONNECT_MOST_MS,
        )
        self._observer = Observer(
            host.disk,
            self._log,
            self.leadership,
            self._calls,
            Replica(node.cluster_id, node.node_id, node.directory_id),
            self.metadata,
            Backoff(host.random, _RETRY_FIRST_MS, _RETRY_MOST_MS),
        )
        self._controller_calls = Calls(
            host,
            lambda: self.leadership.addresses,
            client_id=f"broker-{node.node_id}-to-controller",
            max_frame_bytes=node.config.int("socket.request.max.bytes"),
            connect_s=_CONNECT_S,
            reconnect_most_ms=_RECONNECT_MOST_MS,
        )
        self.channel = RemoteController(
            host,
            node,
            self.leadership,
            self._controller_calls,
            self.metadata.until,
            lambda topic: topic in self.metadata.committed.topics,
        )
        self.forwarder = Forwarder(self.channel)
        self._following: asyncio.Task[None] | None = None
        self._is_raised = 0

    async def start(self) -> None:
        await self.metadata.open(may_drop=True)
        self._following = asyncio.get_running_loop().create_task(self._observer.run())
        self._following.add_done_callback(self._ended)

    def _ended(self, following: asyncio.Task[None]) -> None:
        if not following.cancelled() and not self._is_raised:
            error = following.exception()
            if error is not None:
                self._on_broken(error)

    async def unless_impossible(self, work: Coroutine[Any, Any, T]) -> T:
        """Does the work, or raises WrongCluster or whatever it is that ends the following of the log meanwhile."""
        assert self._following is not None
        self._is_raised += 1
        task = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait([task, self._following], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._following.result()
            return await task
        finally:
            self._is_raised -= 1
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self.metadata.close()
        await self._calls.close()
        await self._controller_calls.close()

    def current_offset(self) -> int:
        """The offset of the last record that the image has."""
        return self.metadata.next_offset - 1

"""Replicas of this node that are damaged: others lead them, and they are copied anew.

The controller is told that such a replica has no directory any more (AssignReplicasToDirs, KIP-858). In one step it
leaves the ISR and the ELR, and another leads it. When that is committed nobody counts on what is here: it is kept
aside, an empty log takes its place, and the controller is told that the replica is in this directory again.

    damaged here ──told──> LOST, committed ──> kept aside, empty ──told──> in this directory ──> follows, joins the ISR

Rule 1: nothing is told as long as nobody else could lead cleanly: what is left here may be all there is.
Rule 2: a damaged replica fetches nothing. So it cannot join the ISR between the commit of LOST and its emptying.
Every step is read from the committed image, so that it goes on after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import Enum, auto

from semel.broker.cluster_view import ClusterView
from semel.broker.node_info import NodeInfo
from semel.controller.image import LOST_DIRECTORY, PartitionState
from semel.controller.levels import DIRECTORIES
from semel.host.complaints import Complaints
from semel.log.errors import Refused
from semel.peer.errors import PeerError
from semel.wire.errors import ErrorCode
from semel.wire.spec.assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

logger = logging.getLogger("semel.broker")

Key = tuple[bytes, int]
AssignReplicas = Callable[[AssignReplicasToDirsRequest], Awaitable[AssignReplicasToDirsResponse]]

_RETRY_S = 1.0


class Step(Enum):
    """What to do about a replica."""

    FORGET = auto()
    WAIT = auto()
    TELL_LOST = auto()
    BEGIN_ANEW = auto()
    TELL_HERE = auto()


def next_step(state: PartitionState | None, node_id: int, *, is_damaged: bool) -> Step:
    """`state` is that of the partition in the committed image, None if it is gone."""
    if state is None or node_id not in state.replicas:
        return Step.FORGET
    is_lost = state.directory_of(node_id) == LOST_DIRECTORY
    if not is_damaged:
        return Step.TELL_HERE if is_lost else Step.FORGET
    if is_lost:
        return Step.WAIT if node_id in state.isr or node_id in state.elr else Step.BEGIN_ANEW
    has_others = any(one != node_id for one in (*state.isr, *state.elr))
    return Step.TELL_LOST if has_others else Step.WAIT


class DamagedReplicas:
    """`begin_anew` keeps what is there of a replica aside, and begins an empty one."""

    def __init__(
        self,
        node: NodeInfo,
        cluster: ClusterView,
        assign: AssignReplicas,
        begin_anew: Callable[[bytes, int], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._node = node
        self._cluster = cluster
        self._assign = assign
        self._begin_anew = begin_anew
        self._on_broken = on_broken
        self._watched: dict[Key, bool] = {}  # by whether it is damaged
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._complaints = Complaints(logger)

    # -- told by others

    def found(self, topic_id: bytes, index: int) -> None:
        """A replica of this node is damaged."""
        if not self.is_damaged(topic_id, index):
            self._watch((topic_id, index), is_damaged=True)

    def opened(self, topic_id: bytes, index: int, state: PartitionState) -> None:
        """A replica was opened, and is whole as far as is known."""
        if state.directories and state.directory_of(self._node.node_id) == LOST_DIRECTORY:
            self._watch((topic_id, index), is_damaged=False)

    def is_damaged(self, topic_id: bytes, index: int) -> bool:
        return self._watched.get((topic_id, index), False)

    def look(self) -> None:
        """The image has changed."""
        if self._watched:
            self._changed.set()

    def _watch(self, key: Key, *, is_damaged: bool) -> None:
        self._watched[key] = is_damaged
        self._changed.set()
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    # -- the task, there while something is watched

    async def _run(self) -> None:
        try:
            while self._watched:
                self._changed.clear()
                failed = await self._take_steps()
                if self._watched:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_RETRY_S if failed else None):
                            await self._changed.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._on_broken(error)
        finally:
            self._task = None

    async def _take_steps(self) -> bool:
        """True: something is to be tried again."""
        image = self._cluster.image
        if image.metadata_version < DIRECTORIES or not self._node.directories:
            return False
        told: dict[bytes, list[Key]] = {}
        for key, is_damaged in list(self._watched.items()):
            topic = image.topic_by_id(key[0])
            state = None if topic is None else topic.partitions.get(key[1])
            match next_step(state, self._node.node_id, is_damaged=is_damaged):
                case Step.FORGET:
                    del self._watched[key]
                case Step.TELL_LOST:
                    told.setdefault(LOST_DIRECTORY, []).append(key)
                case Step.TELL_HERE:
                    told.setdefault(self._node.directories[0], []).append(key)
                case Step.BEGIN_ANEW:
                    self._watched[key] = False
                    self._changed.set()
                    self._begin_anew(*key)
        return bool(told) and not await self._tell(told)

    async def _tell(self, told: Mapping[bytes, list[Key]]) -> bool:
        """Whether the controller has taken all of it."""
        request = AssignReplicasToDirsRequest(
            broker_id=self._node.node_id,
            broker_epoch=self._node.broker_epoch,
            directories=[AssignedDirectory(id=one, topics=_by_topic(keys)) for one, keys in told.items()],
        )
        try:
            answer = await self._assign(request)
        except (Refused, PeerError, OSError) as error:
            self._complaints.say("untold", logging.WARNING, "the controller cannot be told of damage now: %s", error)
            return False
        codes = {answer.error_code} | {
            partition.error_code
            for directory in answer.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        wrong = sorted(codes - {ErrorCode.NONE})
        if wrong:
            name = ErrorCode(wrong[0]).name
            self._complaints.say("refused", logging.WARNING, "the controller does not take word of damage: %s", name)
        return not wrong

    async def close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            task = self._task
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _by_topic(keys: list[Key]) -> list[AssignedTopic]:
    topics: dict[bytes, list[AssignedPartition]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(AssignedPartition(partition_index=index))
    return [AssignedTopic(topic_id=one, partitions=partitions) for one, partitions in topics.items()]

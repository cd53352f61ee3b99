"""Keeps records on their way: one fetch in flight per node, parked at the broker until there is something to answer.

Every node has a lane: a connection of its own, so that a parked fetch holds nothing else up, a fetch session, and a
task. The next answer is asked for when the program begins to read the last one: at most two are held per partition. A
fetch that leaves somebody out does not park, or those left out would starve while it waits; it is sent again when
something has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from semel.client.cluster import Cluster
from semel.client.consumer.fetch_answers import FetchAnswers
from semel.client.consumer.fetch_session import FINAL_EPOCH, NO_SESSION, FetchSession, Key, Wanted
from semel.client.consumer.positions import PartitionReaders, Phase, Reading
from semel.client.consumer.settings import ConsumerSettings
from semel.client.counts import ConsumerCounts
from semel.client.errors import FatalError, SemelError
from semel.client.metadata import NO_NODE
from semel.client.peers import ClientConnector, ClientNodes, as_semel_error
from semel.rpc.connection import Connection
from semel.wire.schema import NO_UUID
from semel.wire.spec.fetch import FetchRequest, FetchResponse

logger = logging.getLogger("semel.client")

_NAMES_UNTIL = 12
_NEWEST = 1 << 15


class AskedPartition(NamedTuple):
    """A partition in a request, and what it was like then: an answer counts only if it still is."""

    reading: Reading
    version: int
    offset: int


class Plan(NamedTuple):
    """What to ask a node for, by name."""

    asking: list[AskedPartition]
    leaves_out: bool


class Lane:
    """One node: asked by one task, one request at a time."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.session = FetchSession()
        self.woken = asyncio.Event()
        self.is_dry = False
        """The last answer, for which the broker did not wait, was empty: nothing is asked until there is a change."""
        self.has_changed = False
        """Something has changed since the request was sent that is in flight."""
        self.task: asyncio.Task[None] | None = None


class Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        readings: PartitionReaders,
        *,
        news: Callable[[], None],
        unplaced: Callable[[], None],
        broke: Callable[[asyncio.Task[None]], None],
    ) -> None:
        """`news` is called when an answer brought records or a problem, `unplaced` when a position is to be found,
        `broke` with a task that has ended: if by an error, it is one of ours."""
        self.poll_waits = False
        """The program waits for records, so those that are left out are not what it waits for: fetches may park."""
        self.counts = ConsumerCounts()
        self._cluster = cluster
        self._settings = settings
        self._readings = readings
        self._news = news
        self._broke = broke
        self._answers = FetchAnswers(cluster, settings, readings, later=self.later, moved=self.kick, unplaced=unplaced)
        self._connector = ClientConnector(cluster.host, settings)
        self._nodes = ClientNodes(cluster.host, settings, self._connector)
        self._lanes: dict[int, Lane] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    # -- when to ask

    def kick(self) -> None:
        """Something has changed: whoever wants records is asked for, unless its node is being asked already."""
        if self._is_closed:
            return
        for reading in self._readings:
            if reading.wants_records():
                node_id = self._node_of(reading)
                if node_id == NO_NODE:
                    self._cluster.stale()
                elif node_id not in self._lanes:
                    self._open_lane(node_id)
        for lane in self._lanes.values():
            lane.is_dry = False
            lane.has_changed = True
            lane.woken.set()

    def cluster_changed(self) -> None:
        self._nodes.update(self._cluster.view.nodes)
        self.kick()

    def later(self, reading: Reading) -> None:
        """Asked again after a pause that grows with its failures."""
        loop = asyncio.get_running_loop()
        reading.failures += 1
        reading.not_before_s = loop.time() + self._cluster.backoff_s(reading.failures)
        if self._timer is None or self._timer.when() > reading.not_before_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(reading.not_before_s, self._pause_is_over)

    def _pause_is_over(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        waiting = [reading.not_before_s for reading in self._readings if reading.not_before_s > now_s]
        if waiting:
            self._timer = asyncio.get_running_loop().call_at(min(waiting), self._pause_is_over)
        self.kick()

    def _node_of(self, reading: Reading) -> int:
        """The replica that the leader has named (KIP-392), for as long as that may be believed; else the leader."""
        if reading.preferred_node != NO_NODE:
            loop = asyncio.get_running_loop()
            if loop.time() < reading.preferred_until_s and reading.preferred_node in self._cluster.view.nodes:
                return reading.preferred_node
            reading.preferred_node = NO_NODE
            loop.call_soon(self.kick)  # the leader's lane may be asleep
        return self._cluster.leader_of(*reading.partition)

    # -- a lane

    def _open_lane(self, node_id: int) -> None:
        lane = self._lanes[node_id] = Lane(node_id)
        lane.task = asyncio.get_running_loop().create_task(self._run(lane), name=f"fetches from node {node_id}")
        lane.task.add_done_callback(self._broke)

    async def _run(self, lane: Lane) -> None:
        failures = 0
        while True:
            if not self._has_work(lane):
                if lane.node_id not in self._cluster.view.nodes:
                    del self._lanes[lane.node_id]
                    return
                lane.woken.clear()
                await lane.woken.wait()
                continue
            try:
                await self._fetch_once(lane)
                failures = 0
            except Exception as error:
                lane.session.failed()
                failures += 1
                self.counts.failed_fetches += 1
                self._failed(lane, as_semel_error(error))
                await asyncio.sleep(self._cluster.backoff_s(failures))

    def _has_work(self, lane: Lane) -> bool:
        return not lane.is_dry and bool(self._plan(lane.node_id).asking)

    async def _fetch_once(self, lane: Lane) -> None:
        connection = await self._nodes.connect(lane.node_id)
        throttled_s = connection.throttled_until_s - asyncio.get_running_loop().time()
        if throttled_s > 0:
            await asyncio.sleep(throttled_s)
        plan = self._plan(lane.node_id)
        if not plan.asking or lane.is_dry:
            return
        lane.has_changed = False
        clock = self._cluster.host.clock
        began_ns = clock.monotonic_ns()
        asked, future, parks = self._send(lane, connection, plan)
        response = await future
        self.counts.fetch_times.observe(clock.monotonic_ns() - began_ns)
        for topic in response.responses:
            self.counts.size_bytes += sum(len(one.records or b"") for one in topic.partitions)
        was_full = lane.session.is_full
        if not lane.session.answered(response):
            logger.debug("node %d ended our fetch session: error code %d", lane.node_id, response.error_code)
            self._answers.check_session_error(response.error_code, was_full)
            return
        found = self._answers.take(lane.node_id, asked, response)
        lane.is_dry = not found and not parks and not lane.has_changed
        if found:
            self.poll_waits = False  # until it has looked, and waits again
            self._news()

    def _send(
        self, lane: Lane, connection: Connection, plan: Plan
    ) -> tuple[dict[Key, AskedPartition], asyncio.Future[FetchResponse], bool]:
        settings = self._settings
        ids = {name: topic.topic_id for name, topic in self._cluster.topics.items()}
        has_ids = all(ids.get(entry.reading.partition.topic, NO_UUID) != NO_UUID for entry in plan.asking)
        version = connection.version_of(FetchRequest, at_most=_NEWEST if has_ids else _NAMES_UNTIL)
        uses_ids = version > _NAMES_UNTIL
        asked: dict[Key, AskedPartition] = {}
        wanted: dict[Key, Wanted] = {}
        for entry in plan.asking:
            name, index = entry.reading.partition
            key = (ids[name] if uses_ids else name, index)
            asked[key] = entry
            wanted[key] = Wanted(entry.offset, entry.reading.leader_epoch, settings.max_partition_fetch_bytes)
        parks = self.poll_waits or not plan.leaves_out
        said = lane.session.ask(wanted, uses_ids)
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms if parks else 0,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation,
            session_id=said.session_id,
            session_epoch=said.epoch,
            topics=said.topics,
            forgotten_topics_data=said.forgotten,
            rack_id=settings.client_rack,
        )
        timeout_s = (settings.request_timeout_ms + settings.fetch_max_wait_ms) / 1000
        return asked, connection.send(request, version, FetchResponse, timeout_s), parks

    def _plan(self, node_id: int) -> Plan:
        now_s = asyncio.get_running_loop().time()
        asking: list[AskedPartition] = []
        leaves_out = False
        for reading in self._readings:
            if reading.phase is not Phase.FETCHING or reading.paused or self._node_of(reading) != node_id:
                continue
            if not reading.has_room:
                leaves_out = True
            elif reading.problem is None and reading.not_before_s <= now_s:
                asking.append(AskedPartition(reading, reading.version, reading.fetch_position[0]))
        return Plan(asking, leaves_out)

    def _failed(self, lane: Lane, error: SemelError) -> None:
        logger.debug("a fetch from node %d failed: %s", lane.node_id, error)
        self._cluster.stale()
        for entry in self._plan(lane.node_id).asking:
            reading = entry.reading
            if reading.preferred_node == lane.node_id:
                reading.preferred_node = NO_NODE
            if isinstance(error, FatalError):
                reading.problem = error
                self._readings.enqueue(reading)
        if isinstance(error, FatalError):
            self._news()
        self.kick()

    # -- the end

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for lane in self._lanes.values():
            if lane.task is not None:
                lane.task.cancel()
            self._end_session(lane)
        await asyncio.gather(*(lane.task for lane in self._lanes.values() if lane.task), return_exceptions=True)
        await self._nodes.close()
        await self._connector.close()

    def _end_session(self, lane: Lane) -> None:
        """The broker may forget the session at once. If this is lost, it does so when it needs the room."""
        if lane.session.session_id == NO_SESSION or lane.node_id not in self._nodes.known:
            return
        connection = self._nodes.connection(lane.node_id)
        if connection is None or not connection.is_open:
            return
        request = FetchRequest(session_id=lane.session.session_id, session_epoch=FINAL_EPOCH)
        try:
            connection.send(request, connection.version_of(FetchRequest), FetchResponse, 1.0)
        except Exception as error:
            logger.debug("the fetch session at node %d was not ended: %s", lane.node_id, error)

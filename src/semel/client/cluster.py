"""The cluster as a client sees it: who leads what, kept fresh, and a way to ask any node.

One refresh runs at a time and serves all who wait. It asks the known nodes first, then the bootstrap addresses again
(KIP-899): a cluster that has moved while we slept is found. Knowledge is replaced as a whole, never patched in place.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from semel.client.errors import (
    BadSetting,
    Closed,
    Disconnected,
    FatalError,
    SemelError,
    TimedOut,
    UnknownTopic,
    error_for,
)
from semel.client.metadata import NO_NODE, ClusterView, Node, Partition, Topic, read_nodes, read_topic
from semel.client.peers import ClientConnector, ClientNodes, as_semel_error
from semel.client.settings import ConnectionSettings
from semel.host.api import Host
from semel.peer.backoff import Attempts, Backoff
from semel.rpc.connection import Connection
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request, Response
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

R = TypeVar("R", bound=Response)


class Cluster:
    """`changed` is called after every refresh that brought news of nodes or topics."""

    def __init__(self, host: Host, settings: ConnectionSettings, *, allow_auto_create: bool = False) -> None:
        self.host = host
        self.settings = settings
        self.view = ClusterView({}, {})
        self.topic_names: dict[bytes, str] = {}
        self.changed: list[Callable[[], None]] = []
        self._addresses = [_address(text) for text in settings.bootstrap_servers]
        self._connector = ClientConnector(host, settings)
        self.nodes = ClientNodes(host, settings, self._connector)
        self._backoff = Backoff(host.random, settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._allow_auto_create = allow_auto_create
        self._watched: dict[str, None] = {}
        self._sought: Counter[str] = Counter()  # topics that are waited for, and by how many
        self._watches_all = False
        self._failures = 0
        self._incomplete = 0  # refreshes in a row after which a topic or a leader was still missing
        self._refreshing: asyncio.Task[None] | None = None
        self._asked_again = False
        self._last_refresh_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    # -- life

    async def start(self) -> None:
        """Finds the cluster. Raises when nobody answers within `bootstrap_timeout_ms`, or at once if it is hopeless."""
        deadline_s = self._now_s() + self.settings.bootstrap_timeout_ms / 1000
        attempts = self.attempts(deadline_s)
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self.refresh()
                return
            except FatalError:
                raise
            except SemelError as error:
                pause_s = attempts.pause_s()
                if pause_s is None:
                    raise self._not_found(error) from error
                await asyncio.sleep(pause_s)
            except TimeoutError as error:
                raise self._not_found(error) from error

    def _not_found(self, error: BaseException) -> Disconnected:
        servers, timeout_s = ", ".join(self.settings.bootstrap_servers), self.settings.bootstrap_timeout_ms / 1000
        return Disconnected(
            f"no broker answered at {servers} within {timeout_s:g} s: {str(error) or 'silence'}; "
            "is it running, and is the address right?"
        )

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self.nodes.close()
        await self._connector.close()

    # -- what is known

    @property
    def topics(self) -> dict[str, Topic]:
        return self.view.topics

    def partition(self, topic: str, index: int) -> Partition | None:
        known = self.view.topics.get(topic)
        return None if known is None else known.partitions.get(index)

    def leader_of(self, topic: str, index: int) -> int:
        """The node that leads a partition, NO_NODE if none is known."""
        partition = self.partition(topic, index)
        if partition is None or partition.leader_id not in self.view.nodes:
            return NO_NODE
        return partition.leader_id

    def why_out_of_reach(self, topic: str, index: int) -> str | None:
        """Why a partition's leader cannot be asked; None if it can."""
        leader_id = self.leader_of(topic, index)
        if leader_id == NO_NODE:
            return "no leader is known for it"
        problem = self.nodes.problem(leader_id)
        return None if problem is None else f"its leader, node {leader_id}: {problem.text}"

    def learn_leader(self, topic: str, index: int, leader_id: int, leader_epoch: int, nodes: Iterable[Node]) -> bool:
        """A broker has named a newer leader along with its refusal (KIP-951). Whether that was news."""
        known = self.view.topics.get(topic)
        old = None if known is None else known.partitions.get(index)
        if known is None or old is None or leader_id < 0 or leader_epoch <= old.leader_epoch:
            return False
        members = {**self.view.nodes, **{node.node_id: node for node in nodes}}
        if leader_id not in members:
            return False
        partition = old._replace(leader_id=leader_id, leader_epoch=leader_epoch)
        self._replace(
            self.view._replace(
                nodes=members,
                topics={**self.view.topics, topic: known._replace(partitions={**known.partitions, index: partition})},
            )
        )
        return True

    # -- keeping it fresh

    def watch(self, topics: Iterable[str]) -> None:
        """Keep knowing these topics; the next refresh asks for them too."""
        new = [name for name in topics if name not in self._watched]
        if new:
            self._watched.update(dict.fromkeys(new))
            if not self._watches_all and not self._is_closed:
                if self._refreshing is None:
                    self._schedule(0.0)  # it is new: there is nothing to be patient about
                else:
                    self._asked_again = True

    def unwatch(self, topics: Iterable[str]) -> None:
        for name in topics:
            self._watched.pop(name, None)

    def watch_all(self, wanted: bool) -> None:
        """Whether every topic of the cluster is of interest, as for a pattern."""
        if wanted and not self._watches_all:
            self.stale()
        self._watches_all = wanted

    def stale(self) -> None:
        """Something does not fit what we know: refresh soon, but not more often than the backoff allows."""
        if self._is_closed:
            return
        if self._refreshing is not None:
            self._asked_again = True
            return
        self._schedule(max(self._last_refresh_s + self.settings.retry_backoff_ms / 1000 - self._now_s(), 0.0))

    async def refresh(self) -> None:
        """Returns when a refresh has succeeded that began after this call; raises if it failed."""
        if self._is_closed:
            raise Closed("the client was closed")
        running = self._refreshing
        if running is not None:
            await asyncio.wait([running])
        if self._refreshing is None or self._refreshing is running:
            self._begin()
        task = self._refreshing
        if task is None:
            raise Closed("the client was closed")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._is_closed:
                raise Closed("the client was closed") from None
            raise

    async def topic(self, name: str, timeout_s: float) -> Topic:
        """A topic that can be used, waiting until it is there. Raises UnknownTopic, with why, after `timeout_s`."""
        known = self.view.topics.get(name)
        if known is not None and known.is_usable:
            return known
        self._sought[name] += 1
        try:
            found = await self._seek(name, timeout_s)
        finally:
            self._sought -= Counter([name])
        self._watched[name] = None
        return found

    async def _seek(self, name: str, timeout_s: float) -> Topic:
        deadline_s = self._now_s() + timeout_s
        attempts = self.attempts(deadline_s)
        reason = "no broker could be asked"
        while True:
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self.refresh()
                known = self.view.topics.get(name)
                if known is not None and known.is_usable:
                    return known
                code = known.error_code if known is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                error = error_for(code, f"topic {name!r}")
                if isinstance(error, FatalError):
                    raise error
                reason = error.text
            except FatalError:
                raise
            except SemelError as problem:
                reason = problem.text
            except TimeoutError:
                pass  # the last reason is the better one
            pause_s = attempts.pause_s()
            if pause_s is None:
                raise UnknownTopic(f"topic {name!r} was not found within {timeout_s:g} s: {reason}")
            await asyncio.sleep(pause_s)

    def _schedule(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed or (self._refreshing is not None and not self._refreshing.done()):
            return
        self._asked_again = False
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        self._refreshing.add_done_callback(self._refreshed)

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        if self._refreshing is task:
            self._refreshing = None
        if task.cancelled() or self._is_closed:
            return
        self._last_refresh_s = self._now_s()
        if task.exception() is not None:
            self._failures += 1
            self._schedule(self._backoff.delay_s(self._failures))
        else:
            self._failures = 0
            delay_s = self.settings.metadata_max_age_ms / 1000
            if self._asked_again:
                delay_s = self.settings.retry_backoff_ms / 1000
            elif self._incomplete:  # a topic that is not there may come, or never
                delay_s = self._backoff.delay_s(self._incomplete)
            self._schedule(delay_s)

    async def _refresh(self) -> None:
        asked = None if self._watches_all else dict.fromkeys([*self._watched, *self._sought])
        request = MetadataRequest(
            topics=None if asked is None else [MetadataRequestTopic(name=name) for name in asked],
            allow_auto_topic_creation=self._allow_auto_create and asked is not None,
        )
        answer = await self._ask_somebody(request)
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            answer = await self._ask_bootstrap(request)
        if not answer.brokers:
            raise Disconnected("the broker does not know of any broker yet, itself included")
        before = self.view.topics
        wanted = {**self._watched, **self._sought}  # as it is by now
        topics = {} if asked is None else {name: topic for name, topic in before.items() if name in wanted}
        for entry in answer.topics:
            if entry.name and (asked is None or entry.name in wanted):
                topics[entry.name] = read_topic(entry, before.get(entry.name))
        if asked is None:
            topics.update(
                {
                    name: Topic(name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    for name in wanted
                    if name not in topics
                }
            )
        view = ClusterView(read_nodes(answer), topics, answer.controller_id, answer.cluster_id)
        is_incomplete = any(not topic.is_usable or _lacks_leader(topic) for topic in topics.values())
        self._incomplete = self._incomplete + 1 if is_incomplete else 0
        self._replace(view)

    def _replace(self, view: ClusterView) -> None:
        if view == self.view:
            return
        self.view = view
        self.topic_names = {topic.topic_id: name for name, topic in view.topics.items()}
        self.nodes.update(view.nodes)
        for callback in list(self.changed):
            callback()

    async def _ask_somebody(self, request: MetadataRequest) -> MetadataResponse:
        tried: set[int] = set()
        while (node_id := self.nodes.least_loaded(tried)) is not None:
            tried.add(node_id)
            try:
                return await self.call(node_id, request, MetadataResponse)
            except FatalError:
                raise
            except SemelError:
                continue
        return await self._ask_bootstrap(request)

    async def _ask_bootstrap(self, request: MetadataRequest) -> MetadataResponse:
        """One round over the addresses, in random order. They share the time: a silent one does not use it up."""
        addresses = list(self._addresses)
        self.host.random.shuffle(addresses)
        problem: SemelError | None = None
        share_s = self.settings.bootstrap_timeout_ms / 1000 / max(len(addresses), 1)
        for host, port in addresses:
            try:
                async with asyncio.timeout(share_s):
                    return await self._ask_address(host, port, request)
            except TimeoutError:
                problem = TimedOut(f"{host}:{port} did not answer within {share_s:g} s")
            except FatalError:
                raise
            except SemelError as error:
                problem = error
        raise problem or BadSetting("bootstrap_servers: at least one host:port is needed")

    async def _ask_address(self, host: str, port: int, request: MetadataRequest) -> MetadataResponse:
        """The connection serves this one question."""
        connection = await self._connector.open(host, port, lambda connection: None)
        try:
            return await self._send(connection, request, MetadataResponse)
        finally:
            connection.close()

    # -- asking

    async def call(
        self,
        node_id: int,
        request: Request,
        response: type[R],
        *,
        timeout_s: float | None = None,
        at_least: int = 0,
        at_most: int = 1 << 15,
    ) -> R:
        """One request to one node, tried once. Raises errors of the client; what the answer says is the caller's."""
        connection = await self.nodes.connect(node_id)
        return await self._send(connection, request, response, timeout_s, at_least, at_most)

    async def call_any(
        self, request: Request, response: type[R], *, timeout_s: float | None = None, at_least: int = 0
    ) -> R:
        """One request to the least loaded node."""
        node_id = self.nodes.least_loaded()
        if node_id is None:
            raise Disconnected("no node of the cluster is known")
        return await self.call(node_id, request, response, timeout_s=timeout_s, at_least=at_least)

    async def _send(
        self,
        connection: Connection,
        request: Request,
        response: type[R],
        timeout_s: float | None = None,
        at_least: int = 0,
        at_most: int = 1 << 15,
    ) -> R:
        timeout_s = self.settings.request_timeout_ms / 1000 if timeout_s is None else timeout_s
        try:
            version = connection.version_of(type(request), at_least=at_least, at_most=at_most)
            return await connection.send(request, version, response, timeout_s)
        except Exception as error:
            raise as_semel_error(error) from error

    def backoff_s(self, failures: int) -> float:
        return self._backoff.delay_s(failures)

    def attempts(self, deadline_s: float) -> Attempts:
        return Attempts(self._backoff, deadline_s)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _lacks_leader(topic: Topic) -> bool:
    return any(partition.leader_id == NO_NODE for partition in topic.partitions.values())


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.strip().rpartition(":")
    host = host.strip("[]")
    if not separator or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadSetting(f"bootstrap_servers: {text!r} is not allowed; allowed is host:port, such as localhost:9092")
    return host, int(port)

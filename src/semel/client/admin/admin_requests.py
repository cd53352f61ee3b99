"""How the admin's questions find the node that can answer, and how long they are tried again.

A call is a `Sheet` of items. Each round routes what is pending to nodes, asks them at the same time, and judges the
answers item by item; what may be tried again waits for the next round, after a pause and a refresh of the cluster. When
`default_api_timeout_ms` is over, what is still pending has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from semel.client.admin.outcome import K, Sheet, V, admin_error
from semel.client.admin.settings import AdminSettings
from semel.client.cluster import Cluster
from semel.client.coordinators import CoordinatorKind, Coordinators
from semel.client.errors import BadSetting, Closed, Disconnected, IllegalState, RetriableError, SemelError, UnknownTopic
from semel.client.metadata import NO_NODE, Topic, TopicPartition, read_topic
from semel.wire.errors import ErrorCode
from semel.wire.schema import Request, Response
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

R = TypeVar("R", bound=Response)

Route: TypeAlias = Callable[[list[K]], Awaitable[Mapping[int, list[K]]]]
"""Which node to ask for which of the items."""
Ask: TypeAlias = Callable[[int, list[K]], Awaitable[None]]
"""Asks one node for some of the items, and marks on the sheet what came of them."""
Problem: TypeAlias = Callable[[R], tuple[int, str | None]]
"""The error code of a whole answer, and the broker's words."""

Places: TypeAlias = str | TopicPartition | Iterable[str | TopicPartition]
"""Partitions; the name of a topic stands for all of its partitions."""

_NEVER_CREATES_SINCE = 4
"""Before this version a metadata request for a topic may create it."""


def no_problem(answer: Response) -> tuple[int, str | None]:
    return ErrorCode.NONE, None


def problem_of(answer: Response) -> tuple[int, str | None]:
    """For answers that have one code, and perhaps a message, for the whole of them."""
    return getattr(answer, "error_code", ErrorCode.NONE), getattr(answer, "error_message", None)


class AdminRequests:
    def __init__(self, cluster: Cluster, settings: AdminSettings) -> None:
        self.cluster = cluster
        self.coordinators = Coordinators(cluster)
        self.timeout_s = settings.default_api_timeout_ms / 1000
        self.server_timeout_ms = min(settings.request_timeout_ms, settings.default_api_timeout_ms)
        """How long a broker may take over what it does before it answers."""

    # -- the loop

    async def work_off(self, sheet: Sheet[K, V], route: Route[K], ask: Ask[K]) -> dict[K, V]:
        """Asks until every item is done or has failed, or the time is over."""
        deadline_s = asyncio.get_running_loop().time() + self.timeout_s
        attempts = self.cluster.attempts(deadline_s)
        while sheet.pending:
            try:
                async with asyncio.timeout_at(deadline_s):
                    if attempts.failures:
                        await self.cluster.refresh()
                    sheet.begin_round()
                    await self._round(sheet, await route(list(sheet.pending)), ask)
            except TimeoutError:
                break
            except RetriableError as error:
                sheet.again_all(error)
            except SemelError as error:
                sheet.fail_all(error)
            pause_s = attempts.pause_s()
            if not sheet.pending or pause_s is None:
                break
            await asyncio.sleep(pause_s)
        sheet.give_up(self.timeout_s)
        return sheet.outcome()

    async def _round(self, sheet: Sheet[K, V], routed: Mapping[int, list[K]], ask: Ask[K]) -> None:
        async with asyncio.TaskGroup() as group:
            for node_id, items in routed.items():
                group.create_task(self._ask_node(sheet, node_id, items, ask))

    async def _ask_node(self, sheet: Sheet[K, V], node_id: int, items: list[K], ask: Ask[K]) -> None:
        try:
            # On its own: what was never sent cannot have been served.
            await self.cluster.nodes.connect(node_id)
        except RetriableError as error:
            sheet.again_all(error, items)
            return
        except SemelError as error:
            sheet.fail_all(error, items)
            return
        try:
            await ask(node_id, items)
        except RetriableError as error:
            sheet.lost(items, error)
        except SemelError as error:
            sheet.fail_all(error, items)
        else:
            sheet.check_answered(items)

    async def one(
        self,
        doing: str,
        request: Request,
        response: type[R],
        *,
        route: Route[str] | None = None,
        problem: Problem[R] = no_problem,
        at_least: int = 0,
        at_most: int = 1 << 15,
    ) -> R:
        """One question with one answer, to any node unless it is routed."""
        sheet: Sheet[str, R] = Sheet([doing], str)

        async def ask(node_id: int, items: list[str]) -> None:
            answer = await self.cluster.call(node_id, request, response, at_least=at_least, at_most=at_most)
            if sheet.accepts(doing, *problem(answer)):
                sheet.done(doing, answer)

        return (await self.work_off(sheet, route or self.to_anybody, ask))[doing]

    async def every_node(
        self,
        doing: str,
        request: Request,
        response: type[R],
        read: Callable[[R], V],
        *,
        node_ids: Iterable[int] | None = None,
        problem: Problem[R] = problem_of,
        at_least: int = 0,
    ) -> dict[int, V]:
        """The same question to all nodes, or to those named. One that leaves the cluster meanwhile is left out."""
        named = list(self.cluster.view.nodes) if node_ids is None else list(node_ids)
        sheet: Sheet[int, V] = Sheet(named, lambda node_id: f"{doing} of node {node_id}")

        async def to_nodes(items: list[int]) -> dict[int, list[int]]:
            for gone in [item for item in items if item not in self.cluster.view.nodes]:
                if node_ids is None:
                    del sheet.pending[gone]
                else:
                    known = ", ".join(str(node_id) for node_id in sorted(self.cluster.view.nodes))
                    sheet.fail(gone, BadSetting(f"{sheet.doing(gone)}: the cluster's nodes are {known}"))
            return {item: [item] for item in items if item in sheet.pending}

        async def ask(node_id: int, items: list[int]) -> None:
            answer = await self.cluster.call(node_id, request, response, at_least=at_least)
            if sheet.accepts(node_id, *problem(answer)):
                sheet.done(node_id, read(answer))

        return await self.work_off(sheet, to_nodes, ask)

    # -- routes

    async def to_anybody(self, items: list[K]) -> dict[int, list[K]]:
        node_id = self.cluster.nodes.least_loaded()
        if node_id is None:
            raise Disconnected("no node of the cluster is known")
        return {node_id: items}

    async def to_controller(self, items: list[K]) -> dict[int, list[K]]:
        """Any broker passes it on to the controller where that is no broker itself, as in KRaft."""
        controller_id = self.cluster.view.controller_id
        if controller_id in self.cluster.view.nodes:
            return {controller_id: items}
        return await self.to_anybody(items)

    def to_leaders(self, sheet: Sheet[TopicPartition, V]) -> Route[TopicPartition]:
        async def route(places: list[TopicPartition]) -> dict[int, list[TopicPartition]]:
            topics = await self.topics({place.topic for place in places})
            routed: dict[int, list[TopicPartition]] = {}
            for place in places:
                leader_id = _leader_of(sheet, place, topics.get(place.topic))
                if leader_id is not None:
                    routed.setdefault(leader_id, []).append(place)
            if any(leader_id not in self.cluster.view.nodes for leader_id in routed):
                await self.cluster.refresh()
            return routed

        return route

    def to_coordinators(self, kind: CoordinatorKind, sheet: Sheet[str, V]) -> Route[str]:
        async def find(key: str, routed: dict[int, list[str]]) -> None:
            if sheet.pending[key] is not None:
                self.coordinators.forget(kind, key)  # whatever went wrong before, it may have moved
            try:
                node_id = await self.coordinators.find(kind, key)
            except RetriableError as error:
                sheet.again(key, error)
            except SemelError as error:
                sheet.fail(key, error)
            else:
                routed.setdefault(node_id, []).append(key)

        async def route(keys: list[str]) -> dict[int, list[str]]:
            routed: dict[int, list[str]] = {}
            async with asyncio.TaskGroup() as group:
                for key in keys:
                    group.create_task(find(key, routed))
            return routed

        return route

    def to_coordinator(self, kind: CoordinatorKind, key: str, sheet: Sheet[K, V]) -> Route[K]:
        """All items to the coordinator of one group or transactional id."""

        async def route(items: list[K]) -> dict[int, list[K]]:
            if any(reason is not None for reason in sheet.pending.values()):
                self.coordinators.forget(kind, key)
            return {await self.coordinators.find(kind, key): items}

        return route

    # -- what routes need to know

    async def topics(self, names: Iterable[str] | None, node_id: int | None = None) -> dict[str, Topic]:
        """Topics as one node knows them now, asked once; None stands for all. Nothing is remembered: an admin looks at
        many topics, each once."""
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in sorted(set(names))],
            allow_auto_topic_creation=False,
        )
        if node_id is None:
            answer = await self.cluster.call_any(request, MetadataResponse, at_least=_NEVER_CREATES_SINCE)
        else:
            answer = await self.cluster.call(node_id, request, MetadataResponse, at_least=_NEVER_CREATES_SINCE)
        return {entry.name: read_topic(entry, None) for entry in answer.topics if entry.name}

    async def described(self, names: Iterable[str] | None) -> dict[str, Topic]:
        """As `topics`, tried again while it may help. With names, each must be there."""
        if names is None:
            doing = "listing the topics"
            whole: Sheet[str, dict[str, Topic]] = Sheet([doing], str)

            async def ask_all(node_id: int, items: list[str]) -> None:
                whole.done(doing, await self.topics(None, node_id))

            return (await self.work_off(whole, self.to_anybody, ask_all))[doing]
        sheet: Sheet[str, Topic] = Sheet(names, lambda name: f"describing topic {name!r}")

        async def ask(node_id: int, items: list[str]) -> None:
            for name, topic in (await self.topics(items, node_id)).items():
                if sheet.accepts(name, topic.error_code):
                    sheet.done(name, topic)

        return await self.work_off(sheet, self.to_anybody, ask)

    async def partitions(self, places: Places) -> list[TopicPartition]:
        """The partitions that were named, each once, in order."""
        named = _one_or_many(places)
        whole = [place for place in named if isinstance(place, str)]
        topics = await self.described(whole) if whole else {}
        found: dict[TopicPartition, None] = {}
        for place in named:
            if isinstance(place, str):
                found.update(dict.fromkeys(TopicPartition(place, index) for index in sorted(topics[place].partitions)))
            else:
                found[TopicPartition(*place)] = None
        return list(found)


def _leader_of(sheet: Sheet[TopicPartition, V], place: TopicPartition, topic: Topic | None) -> int | None:
    """The node that leads a partition; without one the partition has failed, or is asked for again."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
    if topic is None or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        sheet.fail(place, admin_error(code, sheet.doing(place)))
        return None
    if not sheet.accepts(place, code):
        return None
    partition = topic.partitions.get(place.partition)
    if partition is None:
        sheet.fail(
            place,
            UnknownTopic(
                f"{sheet.doing(place)}: the topic has {len(topic.partitions)} partitions, counted from 0",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ),
        )
        return None
    if partition.leader_id == NO_NODE:
        sheet.accepts(place, ErrorCode.LEADER_NOT_AVAILABLE)
        return None
    return partition.leader_id


def _one_or_many(places: Places) -> list[str | TopicPartition]:
    if isinstance(places, str):
        return [places]
    # A partition is a pair itself, and may have been given as a plain one.
    if isinstance(places, tuple) and len(places) == 2 and isinstance(places[1], int):
        return [TopicPartition(*places)]
    return list(places)


def names_of(one_or_many: str | Iterable[str]) -> list[str]:
    return [one_or_many] if isinstance(one_or_many, str) else list(dict.fromkeys(one_or_many))


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions in the order of requests: by topic."""
    grouped: dict[str, list[int]] = {}
    for topic, index in places:
        grouped.setdefault(topic, []).append(index)
    return grouped


class AdminPart:
    """What the parts of the admin stand on: each has the calls of one noun."""

    _requests: AdminRequests | None = None
    _is_closed = False

    @property
    def _ask(self) -> AdminRequests:
        if self._is_closed:
            raise Closed("the admin was closed")
        if self._requests is None:
            raise IllegalState("the admin was not started: use `async with`, or await start() first")
        return self._requests

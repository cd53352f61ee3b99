"""Topics: create, delete, list, describe, add partitions.

Changes go to the controller. A change whose answer was lost is made again, so the second answer may say that it is made
already: what that means is decided here, call by call. After a change the call waits until every node tells of it, so
that the next call, or another client, does not run into a node that lags behind; `wait=False` leaves that out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from semel.client.admin.admin_requests import AdminPart, Ask, names_of
from semel.client.admin.configs import config_text
from semel.client.admin.outcome import AdminErrors, Sheet, V
from semel.client.admin.values import ConfigEntry, ConfigSource, CreatedTopic, NewTopic
from semel.client.errors import BadSetting, RetriableError, SemelError
from semel.client.metadata import NO_NODE, Topic
from semel.wire.errors import ErrorCode
from semel.wire.schema import NO_UUID
from semel.wire.spec.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from semel.wire.spec.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

logger = logging.getLogger("semel.client")

Seen = Callable[[Topic | None], bool]

_DEFAULTS_SINCE = 4
"""Since this version a topic may be created without its numbers."""
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class TopicsPart(AdminPart):
    async def create_topics(
        self, topics: NewTopic | Iterable[NewTopic], *, validate_only: bool = False, wait: bool = True
    ) -> dict[str, CreatedTopic]:
        """Creates topics. Raises TopicExists for one that is there already.

        After an answer that was lost, "it exists" may speak of our own doing. A topic that is there then, with the
        partitions and replicas that were asked for, counts as created, and its result says `answer_was_lost`.
        """
        wanted: dict[str, NewTopic] = {}
        for topic in [topics] if isinstance(topics, NewTopic) else topics:
            if topic.name in wanted:
                raise BadSetting(f"create_topics: topic {topic.name!r} is named twice")
            wanted[topic.name] = topic
        needs_defaults = any(
            topic.assignment is None and -1 in (topic.partitions, topic.replication_factor) for topic in wanted.values()
        )
        sheet: Sheet[str, CreatedTopic] = Sheet(wanted, lambda name: f"creating topic {name!r}")

        async def ask(node_id: int, names: list[str]) -> None:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=self._ask.server_timeout_ms,
                validate_only=validate_only,
            )
            answer = await self._ask.cluster.call(
                node_id, request, CreateTopicsResponse, at_least=_DEFAULTS_SINCE if needs_defaults else 0
            )
            for result in answer.topics:
                if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and result.name in sheet.unsure:
                    await self._take_if_as_asked(sheet, wanted[result.name], node_id)
                elif sheet.accepts(result.name, result.error_code, result.error_message):
                    sheet.done(result.name, _created(result))

        return await self._change(sheet, ask, (lambda name: _is_usable) if wait and not validate_only else None)

    async def _take_if_as_asked(self, sheet: Sheet[str, CreatedTopic], wanted: NewTopic, node_id: int) -> None:
        """The topic exists, and may be what an earlier attempt made."""
        found = (await self._ask.topics([wanted.name], node_id)).get(wanted.name)
        if found is None or not found.is_usable:
            # Known to the controller, not to this node yet.
            sheet.accepts(wanted.name, ErrorCode.LEADER_NOT_AVAILABLE)
            return
        replicas = {len(partition.replicas) for partition in found.partitions.values()}
        if wanted.assignment is not None:
            as_asked = {number: list(nodes) for number, nodes in wanted.assignment.items()} == {
                number: list(partition.replicas) for number, partition in found.partitions.items()
            }
        else:
            as_asked = wanted.partitions in (-1, len(found.partitions)) and (
                wanted.replication_factor == -1 or replicas == {wanted.replication_factor}
            )
        if as_asked:
            made = CreatedTopic(wanted.name, found.topic_id, len(found.partitions), max(replicas), answer_was_lost=True)
            sheet.done(wanted.name, made)
        else:
            sheet.accepts(
                wanted.name, ErrorCode.TOPIC_ALREADY_EXISTS, "with other partitions or replicas than asked for"
            )

    async def delete_topics(self, topics: str | Iterable[str], *, wait: bool = True) -> None:
        """Deletes topics by name, with all their records.

        A name is first turned into the topic's id, where the broker has ids, and the id is what is deleted: a request
        that is repeated after its answer was lost cannot hit a new topic of the same name. "Not there" is then taken
        for what the lost attempt did.
        """
        names = names_of(topics)
        known = await self._known(names)
        ids = {name: topic.topic_id for name, topic in known.items() if topic.topic_id != NO_UUID}
        names_by_id = {topic_id: name for name, topic_id in ids.items()}
        sheet: Sheet[str, None] = Sheet(names, lambda name: f"deleting topic {name!r}", made_already=_GONE)

        async def ask(node_id: int, items: list[str]) -> None:
            request = DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(topic_id=ids[name]) if name in ids else DeleteTopicState(name=name)
                    for name in items
                ],
                topic_names=items,
                timeout_ms=self._ask.server_timeout_ms,
            )
            answer = await self._ask.cluster.call(node_id, request, DeleteTopicsResponse)
            for result in answer.responses:
                name = names_by_id.get(result.topic_id) or result.name or ""
                if sheet.accepts(name, result.error_code, result.error_message):
                    sheet.done(name, None)

        await self._change(sheet, ask, (lambda name: _is_gone(ids.get(name))) if wait else None)

    async def _known(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that a node knows. Nobody knowing one is for the call itself to find out."""
        try:
            return {name: topic for name, topic in (await self._ask.topics(names)).items() if topic.is_usable}
        except RetriableError:
            return {}

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignment: Mapping[str, Iterable[Iterable[int]]] | None = None,
        validate_only: bool = False,
        wait: bool = True,
    ) -> None:
        """Raises the number of partitions of topics to these totals. `assignment` has the nodes of each new partition.

        Which partition a key goes to changes with their number. After a lost answer, a topic that has the total
        already counts as done.
        """
        given = assignment or {}
        assigned = {
            name: [CreatePartitionsAssignment(broker_ids=list(nodes)) for nodes in partitions]
            for name, partitions in given.items()
        }
        sheet: Sheet[str, None] = Sheet(totals, lambda name: f"adding partitions to topic {name!r}")

        async def ask(node_id: int, names: list[str]) -> None:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(name=name, count=totals[name], assignments=assigned.get(name))
                    for name in names
                ],
                timeout_ms=self._ask.server_timeout_ms,
                validate_only=validate_only,
            )
            answer = await self._ask.cluster.call(node_id, request, CreatePartitionsResponse)
            for result in answer.results:
                if result.error_code == ErrorCode.INVALID_PARTITIONS and result.name in sheet.unsure:
                    topic = (await self._ask.topics([result.name], node_id)).get(result.name)
                    if topic is not None and len(topic.partitions) == totals[result.name]:
                        sheet.done(result.name, None)
                        continue
                if sheet.accepts(result.name, result.error_code, result.error_message):
                    sheet.done(result.name, None)

        seen = (lambda name: _has_partitions(totals[name])) if wait and not validate_only else None
        await self._change(sheet, ask, seen)

    async def list_topics(self, *, include_internal: bool = False) -> dict[str, Topic]:
        """All topics that we may see, by name."""
        topics = await self._ask.described(None)
        return {name: topics[name] for name in sorted(topics) if include_internal or not topics[name].is_internal}

    async def describe_topics(self, topics: str | Iterable[str]) -> dict[str, Topic]:
        """Topics with their ids, and the leader, replicas, replicas in sync and offline replicas of each partition."""
        return await self._ask.described(names_of(topics))

    async def _change(self, sheet: Sheet[str, V], ask: Ask[str], seen: Callable[[str], Seen] | None) -> dict[str, V]:
        """Has the controller make changes, and waits until those that were made are seen, also if others failed."""
        try:
            results = await self._ask.work_off(sheet, self._ask.to_controller, ask)
        except AdminErrors as error:
            if seen is not None and error.results:
                await self._until_seen({name: seen(name) for name in error.results})
            raise
        if seen is not None:
            await self._until_seen({name: seen(name) for name in results})
        return results

    async def _until_seen(self, wanted: Mapping[str, Seen]) -> None:
        """Waits until every node tells of a change. The change is made, so a node that does not answer holds nobody
        up, and one that does not come round until the time is over is logged."""
        ask = self._ask
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + ask.timeout_s
        behind = set(ask.cluster.view.nodes)
        failures = 0
        while behind:
            try:
                async with asyncio.timeout_at(deadline_s), asyncio.TaskGroup() as group:
                    looks = {node_id: group.create_task(self._sees(node_id, wanted)) for node_id in sorted(behind)}
            except TimeoutError:
                break
            behind = {node_id for node_id, look in looks.items() if not look.result()}
            failures += 1
            if behind:
                await asyncio.sleep(ask.cluster.backoff_s(failures))
        if behind:
            logger.warning("nodes %s do not tell of the changed topics %s yet", sorted(behind), sorted(wanted))

    async def _sees(self, node_id: int, wanted: Mapping[str, Seen]) -> bool:
        try:
            topics = await self._ask.topics(wanted, node_id)
        except SemelError:
            return True
        return all(is_seen(topics.get(name)) for name, is_seen in wanted.items())


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=list(nodes))
        for number, nodes in (topic.assignment or {}).items()
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assignments else topic.partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=name, value=config_text(value)) for name, value in topic.configs.items()],
    )


def _created(result: CreatableTopicResult) -> CreatedTopic:
    configs = None
    if result.configs is not None and result.num_partitions >= 0:
        configs = {
            config.name: ConfigEntry(
                config.name, config.value, ConfigSource(config.config_source), config.read_only, config.is_sensitive
            )
            for config in result.configs
        }
    return CreatedTopic(result.name, result.topic_id, result.num_partitions, result.replication_factor, configs)


def _is_usable(topic: Topic | None) -> bool:
    return (
        topic is not None
        and topic.is_usable
        and all(partition.leader_id != NO_NODE for partition in topic.partitions.values())
    )


def _has_partitions(count: int) -> Seen:
    return lambda topic: _is_usable(topic) and topic is not None and len(topic.partitions) >= count


def _is_gone(topic_id: bytes | None) -> Seen:
    """Gone, or another one under the same name."""

    def is_gone(topic: Topic | None) -> bool:
        if topic is None or topic.error_code in _GONE:
            return True
        return topic_id is not None and topic.topic_id not in (topic_id, NO_UUID)

    return is_gone

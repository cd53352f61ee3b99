"""A topic that is compacted and one that forgets its oldest records, written to all the while.

The judges of histories want every record to stay; here records may go, but only those that may: of each key the newest
committed value stays, and what a topic has kept is what was written there, without gaps.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Mapping

from semel.client.admin.admin import Admin
from semel.client.admin.values import NewTopic
from semel.client.consumer.consumer import Consumer
from semel.client.errors import AbortTransactionError, RestartProducerError, RetriableError, SemelError
from semel.client.metadata import TopicPartition
from semel.client.producer.batch import Delivery
from semel.client.producer.producer import Producer
from semel.sim.workload.access import CLOSE_S, Access
from semel.sim.workload.recording import end_until_answered
from semel.sim.world.findings import Findings

COMPACTED = TopicPartition("sim-compacted", 0)
SHORT = TopicPartition("sim-short", 0)
SETTINGS = {
    COMPACTED: {
        "cleanup.policy": "compact",
        "segment.bytes": "400",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
    },
    SHORT: {"retention.bytes": "1500", "segment.bytes": "400"},
}
KEYS = 4
ABORTS = 0.25
PAUSE_S = (0.0, 0.1)
PATIENCE_S = 60.0
WRITER = "side-writer"
TRANSACTIONAL_ID = "sim-side"
READER = "side-reader"


class _Sent:
    def __init__(self, place: TopicPartition, key: bytes, value: bytes) -> None:
        self.place = place
        self.key = key
        self.value = value
        self.offset = -1
        self.is_certain = False
        """Whether it was committed for sure."""
        self.is_possible = True
        """Whether it may be read."""


class SideTopics:
    def __init__(self, access: Access, findings: Findings) -> None:
        self._access = access
        self._findings = findings
        self._random = access.random("side topics")
        self._sent: dict[bytes, _Sent] = {}

    async def create(self) -> None:
        async with Admin(host=self._access.hosts(WRITER), **self._access.connection()) as admin:
            await admin.create_topics([NewTopic(place.topic, 1, configs=dict(SETTINGS[place])) for place in SETTINGS])

    async def run(self, over: asyncio.Event) -> None:
        is_transactional = self._random.random() < 0.7
        while not over.is_set():
            transactional_id = TRANSACTIONAL_ID if is_transactional else None
            producer = self._access.producer(WRITER, transactional_id=transactional_id)
            await producer.start()
            try:
                if not is_transactional or await _initialised(producer):
                    await self._write(producer, over, is_transactional=is_transactional)
            finally:
                await producer.close(timeout_s=CLOSE_S)
        last = await self._write_last()
        await self._read(last)

    # -- writing

    async def _write(self, producer: Producer, over: asyncio.Event, *, is_transactional: bool) -> None:
        random = self._random
        while not over.is_set():
            sent = [self._new(random) for _ in range(random.randint(1, 5))]
            if not is_transactional:
                for one in sent:
                    one.is_certain = await _is_delivered(await self._send(producer, one), one)
            elif not await self._transact(producer, sent, is_commit=random.random() >= ABORTS):
                return
            await asyncio.sleep(random.uniform(*PAUSE_S))

    def _new(self, random: random_module.Random) -> _Sent:
        place = random.choice([COMPACTED, COMPACTED, SHORT])
        value = b"%d %s" % (len(self._sent), b"." * random.choice([0, 30]))
        one = self._sent[value] = _Sent(place, b"key-%d" % random.randrange(KEYS), value)
        return one

    async def _send(self, producer: Producer, one: _Sent) -> Delivery:
        return await producer.send(one.place.topic, one.value, key=one.key, partition=one.place.partition)

    async def _transact(self, producer: Producer, sent: list[_Sent], *, is_commit: bool) -> bool:
        """Whether the producer can go on."""
        try:
            await producer.begin()
            deliveries = [(one, await self._send(producer, one)) for one in sent]
            are_there = [await _is_delivered(delivery, one) for one, delivery in deliveries]
        except AbortTransactionError:
            is_commit = False
        except (RestartProducerError, RetriableError):
            return False
        if not is_commit:
            for one in sent:
                one.is_possible = False
        try:
            await end_until_answered(producer, is_commit=is_commit)
        except AbortTransactionError:
            for one in sent:
                one.is_possible = False
            return False
        except RestartProducerError:
            return False
        if is_commit:
            for one, is_there in zip(sent, are_there, strict=True):
                one.is_certain = is_there
        return True

    async def _write_last(self) -> Mapping[TopicPartition, int]:
        """With a transactional producer's successor, so that nothing stays open."""
        producer = self._access.producer(WRITER, transactional_id=TRANSACTIONAL_ID)
        await producer.start()
        try:
            while not await _initialised(producer):
                pass
            sent = [_Sent(place, b"last", b"last of %s" % place.topic.encode()) for place in SETTINGS]
            self._sent |= {one.value: one for one in sent}
            if not await self._transact(producer, sent, is_commit=True):
                self._findings.wrong("side topics", "the last records could not be written")
            return {one.place: one.offset for one in sent}
        finally:
            await producer.close(timeout_s=CLOSE_S)

    # -- judging

    async def _read(self, last: Mapping[TopicPartition, int]) -> None:
        consumer = self._access.consumer(READER, isolation_level="read_committed")
        await consumer.start()
        try:
            consumer.assign(list(SETTINGS))
            found: dict[TopicPartition, dict[int, bytes]] = {place: {} for place in SETTINGS}
            loop = asyncio.get_running_loop()
            until_s = loop.time() + PATIENCE_S
            while any(last[place] not in found[place] for place in SETTINGS) and loop.time() < until_s:
                for partition, messages in (await consumer.poll(timeout_ms=100)).items():
                    found[partition] |= {message.offset: bytes(message.value or b"") for message in messages}
            await self._judge(consumer, found, last)
        finally:
            await consumer.close(timeout_s=CLOSE_S)

    async def _judge(
        self, consumer: Consumer, found: dict[TopicPartition, dict[int, bytes]], last: Mapping[TopicPartition, int]
    ) -> None:
        starts = await consumer.beginning_offsets(list(SETTINGS))
        for place, values in found.items():
            if last[place] not in values:
                self._findings.wrong("side topics", f"{place.topic} cannot be read to its end at {last[place]}")
            for offset, value in values.items():
                one = self._sent.get(value)
                if one is None or one.place != place or not one.is_possible:
                    self._findings.wrong("side topics", f"{value!r} at {offset} of {place.topic} must not be there")
                elif one.offset not in (-1, offset):
                    text = f"{value!r} was written to {one.offset} of {place.topic} and stands at {offset}"
                    self._findings.wrong("side topics", text)
        for one in self._sent.values():
            if not one.is_certain or one.offset in found[one.place] or one.offset < starts[one.place]:
                continue
            if one.place == COMPACTED and self._has_newer(one, found[COMPACTED]):
                continue
            self._findings.wrong("side topics", f"{one.value!r} at {one.offset} of {one.place.topic} is gone")

    def _has_newer(self, one: _Sent, values: dict[int, bytes]) -> bool:
        return any(offset > one.offset and self._sent[value].key == one.key for offset, value in values.items())


async def _initialised(producer: Producer) -> bool:
    while True:
        try:
            await producer.init_transactions()
            return True
        except RetriableError:
            continue
        except RestartProducerError:
            return False


async def _is_delivered(delivery: Delivery, one: _Sent) -> bool:
    try:
        one.offset = (await delivery).offset
        return True
    except SemelError:
        return False

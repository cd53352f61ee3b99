"""What a fetch session looks at, and that it misses nothing: partitions call when there is something to tell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from broker_harness import Node, RawClient, batch_of, fetch_request, partition_of, simulated, values_in
from transaction_harness import V1, with_transactions
from transaction_harness import started as transactional

from semel.broker.fetch_sessions import Key
from semel.broker.fetching import Fetch
from semel.wire.errors import ErrorCode
from semel.wire.spec.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from semel.wire.spec.delete_topics import DeleteTopicsRequest, DeleteTopicState
from semel.wire.spec.fetch import FetchRequest, FetchResponse, ForgottenTopic

FOREVER = 1 << 30
NAMES = "abc"


class Reader:
    """A consumer with a session, which it steps by epochs."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.session_id = 0
        self.epoch = 0

    def send(self, request: FetchRequest | None = None) -> asyncio.Future[FetchResponse]:
        request = request or fetch_request({})
        request.session_id, request.session_epoch = self.session_id, self.epoch
        self.epoch += 1
        return self.client.send(request, 12)

    async def fetch(self, request: FetchRequest | None = None) -> FetchResponse:
        answer = await self.send(request)
        assert answer.error_code == 0
        self.session_id = answer.session_id
        return answer


async def settled(node: Node, **options: int) -> Reader:
    """It has read the one record of each topic, and knows all."""
    reader = Reader(await node.client())
    for name in NAMES:
        await reader.client.create_topic(name)
        await reader.client.produce(name, batch_of(name.encode()))
    await reader.fetch(fetch_request({(name, 0): 1 for name in NAMES}, **options))
    assert mentioned(await reader.fetch(fetch_request({}, **options))) == {}
    return reader


def mentioned(response: FetchResponse) -> dict[str, int]:
    return {topic.topic: partition.error_code for topic in response.responses for partition in topic.partitions}


def watchers(node: Node) -> dict[str, int]:
    return {name: len(node.broker.topics.partition(name, 0).watchers) for name in NAMES}


@contextmanager
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Key]]:
    looks: list[Key] = []
    read = Fetch._read_one
    monkeypatch.setattr(Fetch, "_read_one", lambda self, key, *rest: looks.append(key) or read(self, key, *rest))
    yield looks


async def delete_topic(client: RawClient, name: str) -> None:
    answer = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000), 6)
    assert answer.responses[0].error_code == 0


async def delete_records(client: RawClient, name: str, offset: int) -> None:
    wanted = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    answer = await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), 2)
    assert answer.topics[0].partitions[0].error_code == 0


@simulated()
async def test_a_fetch_looks_only_at_partitions_that_have_news(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = await settled(node)
    with looked_at(monkeypatch) as looks:
        await reader.fetch()
        assert looks == []
        await reader.client.produce("b", batch_of(b"b2"))
        assert values_in(partition_of(await reader.fetch(), "b")) == [b"b2"]
        assert looks == [("b", 0)]
        await reader.fetch(fetch_request({("b", 0): 2}))
        looks.clear()
        assert mentioned(await reader.fetch()) == {}
        assert looks == []


@simulated()
async def test_a_reader_that_is_behind_is_not_called_by_those_who_write(node: Node) -> None:
    reader = await settled(node)
    assert watchers(node) == {"a": 1, "b": 1, "c": 1}
    await reader.client.produce("a", batch_of(b"a2"))
    assert watchers(node) == {"a": 0, "b": 1, "c": 1}
    await reader.fetch()
    assert watchers(node) == {"a": 0, "b": 1, "c": 1}
    await reader.fetch(fetch_request({("a", 0): 2}))
    assert watchers(node) == {"a": 1, "b": 1, "c": 1}


@simulated()
async def test_a_poll_is_woken_by_every_record_until_there_is_enough(node: Node) -> None:
    reader, producer = await settled(node), await node.client()
    size = len(batch_of(b"b2"))
    answer = reader.send(fetch_request({}, max_wait_ms=FOREVER, min_bytes=2 * size + 1))
    for name in "bbc":
        await asyncio.sleep(1)
        assert not answer.done()
        await producer.produce(name, batch_of(b"%b2" % name.encode()))
    told = await asyncio.wait_for(answer, 1)
    assert values_in(partition_of(told, "b")) == [b"b2", b"b2"]
    assert values_in(partition_of(told, "c")) == [b"c2"]


@simulated()
async def test_that_a_log_begins_later_is_told(node: Node) -> None:
    reader = await settled(node)
    await delete_records(reader.client, "b", 1)
    told = await reader.fetch()
    assert mentioned(told) == {"b": 0}
    assert partition_of(told, "b").log_start_offset == 1
    assert mentioned(await reader.fetch()) == {}


@simulated()
async def test_that_a_topic_is_gone_and_that_it_is_there_again_is_told(node: Node) -> None:
    reader, admin = await settled(node), await node.client()
    answer = reader.send(fetch_request({}, max_wait_ms=FOREVER))
    await asyncio.sleep(1)
    await delete_topic(admin, "b")
    assert mentioned(await asyncio.wait_for(answer, 1)) == {"b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    await admin.create_topic("b")
    for value in (b"new", b"newer"):
        await admin.produce("b", batch_of(value))
    told = await reader.fetch()
    assert mentioned(told) == {"b": 0}
    assert values_in(partition_of(told, "b")) == [b"newer"]


@simulated()
async def test_who_was_content_with_what_is_stable_may_ask_for_more(node: Node) -> None:
    client = await with_transactions(node)
    for name in NAMES:
        await client.create_topic(name)
    producer = await transactional(client, V1)
    await producer.add(0, topic="b")
    await producer.write(b"open", topic="b")
    reader = Reader(await node.client())
    await reader.fetch(fetch_request({(name, 0): 0 for name in NAMES}, isolation_level=1))
    assert mentioned(await reader.fetch(fetch_request({}, isolation_level=1))) == {}
    assert values_in(partition_of(await reader.fetch(fetch_request({}, isolation_level=0)), "b")) == [b"open"]


@simulated()
async def test_the_end_of_a_transaction_is_news_for_who_reads_what_is_stable(node: Node) -> None:
    client = await with_transactions(node)
    for name in NAMES:
        await client.create_topic(name)
    producer = await transactional(client, V1)
    await producer.add(0, topic="b")
    await producer.write(b"open", topic="b")
    reader = Reader(await node.client())
    await reader.fetch(fetch_request({(name, 0): 0 for name in NAMES}, isolation_level=1))
    answer = reader.send(fetch_request({}, isolation_level=1, max_wait_ms=FOREVER))
    await asyncio.sleep(1)
    assert not answer.done()
    await producer.commit()
    assert b"open" in values_in(partition_of(await asyncio.wait_for(answer, 1), "b"))


@pytest.mark.parametrize("ending", ["replaced", "ended", "forgotten"])
@simulated()
async def test_partitions_that_nobody_reads_any_more_are_not_watched(node: Node, ending: str) -> None:
    reader = await settled(node)
    if ending == "forgotten":
        gone = [ForgottenTopic(topic=name, partitions=[0]) for name in NAMES]
        await reader.fetch(fetch_request({}, forgotten_topics_data=gone))
    else:
        reader.epoch = 0 if ending == "replaced" else -1
        await reader.fetch(fetch_request({("a", 0): 0}))
    assert watchers(node) == {"a": 0, "b": 0, "c": 0}


@simulated(settings={"max.incremental.fetch.session.cache.slots": "1"})
async def test_a_session_that_made_room_watches_nothing_also_if_a_poll_waits_in_it(node: Node) -> None:
    reader, other = await settled(node), Reader(await node.client())
    answer = reader.send(fetch_request({}, max_wait_ms=150_000))
    await asyncio.sleep(130)
    await other.fetch(fetch_request({("a", 0): 0}))
    assert other.session_id
    assert watchers(node) == {"a": 0, "b": 0, "c": 0}
    assert mentioned(await asyncio.wait_for(answer, 21)) == {}
    assert watchers(node) == {"a": 0, "b": 0, "c": 0}


class Model:
    """What a session owes its reader, told without any memory of what was looked at."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.offsets: dict[str, int] = {}
        self.told: dict[str, tuple[int, int]] = {}

    def check(self, response: FetchResponse, names: set[str]) -> None:
        """No limit of bytes is met: whoever has something to tell is mentioned, and nobody else."""
        expected = set()
        for name in self.offsets:
            if name not in names:
                expected.add(name)
                continue
            log = self._node.broker.topics.partition(name, 0).log
            offset, now = self.offsets[name], (log.high_watermark, log.start_offset)
            is_refused = not log.start_offset <= offset <= log.end_offset
            if is_refused or offset < log.high_watermark or self.told.get(name) != now:
                expected.add(name)
        assert mentioned(response).keys() == expected
        for topic in response.responses:
            (part,) = topic.partitions
            self.told[topic.topic] = (part.high_watermark, part.log_start_offset)


async def change_something(node: Node, admin: RawClient, names: set[str], random: Random) -> None:
    name = random.choice("abcd")
    what = random.choice(["produce"] * 6 + ["delete records", "delete topic"])
    if name not in names:
        await admin.create_topic(name)
        names.add(name)
    elif what == "delete topic":
        await delete_topic(admin, name)
        names.discard(name)
    elif what == "produce":
        await admin.produce(name, batch_of(b"."))
    else:
        log = node.broker.topics.partition(name, 0).log
        await delete_records(admin, name, random.randint(log.start_offset, log.high_watermark))


@pytest.mark.parametrize("seed", range(40))
@simulated()
async def test_a_session_tells_what_one_that_looks_at_everything_would(node: Node, seed: int) -> None:
    random = Random(seed)
    admin, reader, model = await node.client(), Reader(await node.client()), Model(node)
    names = set("abcd")
    for name in sorted(names):
        await admin.create_topic(name)
    wanted = set(names)
    for _ in range(60):
        forgotten = [name for name in model.offsets if name not in wanted and random.random() < 0.1]
        for name in forgotten:
            model.offsets.pop(name)
            model.told.pop(name, None)
        for name in wanted:
            end = node.broker.topics.partition(name, 0).log.high_watermark if name in names else 0
            model.offsets[name] = random.choice([end, end, end, max(end - 1, 0)])
        request = fetch_request(
            {(name, 0): model.offsets[name] for name in sorted(wanted)},
            forgotten_topics_data=[ForgottenTopic(topic=name, partitions=[0]) for name in forgotten],
        )
        model.check(await reader.fetch(request), names)
        for _ in range(random.randrange(3)):
            await change_something(node, admin, names, random)
        wanted = {name for name in "abcd" if random.random() < 0.3}
    kept = node.broker.fetch_sessions._sessions.values()
    for name in names:
        assert all(watcher in kept for watcher in node.broker.topics.partition(name, 0).watchers)

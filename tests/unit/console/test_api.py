"""What the page asks for, over an admin that answers from memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import httpx
import pytest

from semel.client.admin.admin import Admin
from semel.client.admin.group_values import ListedGroup, PartitionLag, TransactionDescription
from semel.client.admin.values import ClusterDescription, ConfigEntry, ConfigResource, ConfigSource
from semel.client.errors import Disconnected, UnsupportedByBroker
from semel.client.metadata import Node, Partition, Topic, TopicPartition
from semel.client.values import OffsetAndMetadata, OffsetAndTimestamp
from semel.console.app import VIEWS, Console, ConsoleSettings
from semel.console.cached import Cached
from semel.console.guard import CSRF_HEADER
from semel.console.live import documents
from semel.console.samples import Series, SeriesByName
from semel.console.watch import Turns


class MemoryAdmin:
    def __init__(self, topics: int = 3, groups: int = 2) -> None:
        self.topics = {
            f"topic-{number:05}": Topic(f"topic-{number:05}", b"x" * 16, False, {0: Partition(0, 1, 0, (1,), (1,))})
            for number in range(topics)
        }
        self.topics["__consumer_offsets"] = Topic(
            "__consumer_offsets", b"y" * 16, True, {0: Partition(0, 1, 0, (1,), (1,))}
        )
        self.groups = [f"group-{number:04}" for number in range(groups)]
        self.transaction = TransactionDescription("till", "Ongoing", 5, 0, 60_000, 1000, frozenset(), 1)
        self.fenced: list[str] = []
        self.calls: list[str] = []
        self.committed: dict[TopicPartition, int] = {TopicPartition("topic-00000", 0): 5}
        self.is_away = False

    async def list_topics(self, *, include_internal: bool = False) -> dict[str, Topic]:
        self.calls.append("list_topics")
        if self.is_away:
            raise Disconnected("no node of the cluster is known")
        return dict(self.topics)

    async def describe_topics(self, names: Any) -> dict[str, Topic]:
        return {name: self.topics[name] for name in ([names] if isinstance(names, str) else names)}

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        return ClusterDescription("the-id", 1, {1: Node(1, "127.0.0.1", 9092)})

    async def describe_quorum(self) -> Any:
        raise UnsupportedByBroker("no")

    async def list_partition_reassignments(self) -> dict[Any, Any]:
        return {}

    async def replica_ends(self, node_id: int, places: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 10)

    async def describe_versions(self) -> dict[int, Any]:
        return {}

    async def describe_log_dirs(self) -> dict[int, Any]:
        return {}

    async def list_groups(self) -> dict[str, ListedGroup]:
        return {name: ListedGroup(name, "consumer", "Empty", "classic") for name in self.groups}

    async def group_lag(self, names: list[str]) -> dict[str, dict[TopicPartition, PartitionLag]]:
        place = TopicPartition("topic-00000", 0)
        return {name: {place: PartitionLag(OffsetAndMetadata(5), 0, 10)} for name in names}

    async def list_group_offsets(self, name: str) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        return {name: {place: OffsetAndMetadata(offset) for place, offset in self.committed.items()}}

    async def alter_group_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed |= offsets

    async def list_offsets(self, wanted: Any, at: int = -1, **rest: Any) -> dict[TopicPartition, OffsetAndTimestamp]:
        places = wanted if isinstance(wanted, Mapping) else {TopicPartition(wanted, 0): at}
        return {place: OffsetAndTimestamp(0 if when == -2 else 10, -1, 0) for place, when in places.items()}

    async def list_transactions(self, **rest: Any) -> dict[str, Any]:
        return {"till": self.transaction}

    async def describe_transactions(self, names: Any) -> dict[str, TransactionDescription]:
        return {name: self.transaction for name in names if name == "till"}

    async def fence_producers(self, name: str) -> dict[str, Any]:
        self.fenced.append(name)
        return {name: None}

    async def describe_configs(self, resource: ConfigResource) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        secret = ConfigEntry("ssl.key.password", None, ConfigSource.BROKER, is_sensitive=True)
        return {resource: {"ssl.key.password": secret, "num.partitions": ConfigEntry("num.partitions", "3")}}


class Page:
    """A console and a browser at it."""

    def __init__(self, admin: MemoryAdmin, **settings: Any) -> None:
        self.admin = admin

        def no_admin() -> AbstractAsyncContextManager[Admin]:
            raise AssertionError("nobody follows records here")

        self.console = Console(ConsoleSettings(**settings), cast(Admin, admin), no_admin)
        transport = httpx.ASGITransport(self.console.app())
        self.browser = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def get(self, path: str) -> Any:
        answer = await self.browser.get(f"/api/{path}")
        return answer.json() if answer.status_code == 200 else (answer.status_code, answer.json()["error"])

    async def change(self, change: str, /, **given: Any) -> Any:
        token = (await self.browser.get("/api/session")).json()["csrf"]
        answer = await self.browser.post(f"/api/changes/{change}", json=given, headers={CSRF_HEADER: token})
        return answer.json()["done"] if answer.status_code == 200 else (answer.status_code, answer.json()["error"])


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    made = Page(MemoryAdmin(), allows_changes=True)
    yield made
    await made.browser.aclose()


async def test_the_overview_says_how_many_and_that_all_is_well(page: Page) -> None:
    document = await page.get("overview")
    assert document["topics"] == 4
    assert document["groups"] == 2
    assert document["findings"] == []


async def test_topics_come_in_pages_and_can_be_searched() -> None:
    page = Page(MemoryAdmin(topics=10_000))
    document = await page.get("topics?page=3")
    assert document["total"] == 10_000
    assert [one["name"] for one in document["topics"]] == [f"topic-{number:05}" for number in range(100, 150)]
    assert document["topics"][0]["records"] == 10
    document = await page.get("topics?q=TOPIC-0123&internal=1")
    assert document["total"] == 10
    assert (await page.get("topics?q=__&internal=1"))["topics"][0]["name"] == "__consumer_offsets"


async def test_many_pages_cost_one_question(page: Page) -> None:
    await asyncio.gather(*(page.get(f"topics?page={number}") for number in range(1, 20)))
    assert page.admin.calls == ["list_topics"]


async def test_groups_come_in_pages() -> None:
    document = await Page(MemoryAdmin(groups=1000)).get("groups?sort=name&page=20")
    assert document["pages"] == 20
    assert len(document["groups"]) == 50


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("topics?page=0", 400, "a number from 1"),
        ("topics?page=x", 400, "page='x'"),
        ("topics?sort=evil", 400, "name, partitions, size, rate"),
        ("topics?q=" + "x" * 2000, 400, "2000 characters"),
        ("topic", 400, "name is missing"),
        ("transaction?name=nobody", 404, "no transactional id 'nobody'"),
        ("messages?topic=topic-00000&from=yesterday", 400, "earliest, latest"),
        ("messages?topic=topic-00000&cursor=x", 400, "cursor"),
        ("messages?topic=topic-00000&limit=100000", 400, "from 1 to 200"),
        ("no-such-view", 404, "no view"),
    ],
)
async def test_what_is_not_understood_is_refused_in_a_sentence(page: Page, path: str, status: int, told: str) -> None:
    found = await page.get(path)
    assert found[0] == status
    assert told in found[1]


async def test_a_cluster_that_does_not_answer_is_told(page: Page) -> None:
    page.admin.is_away = True
    status, told = await page.get("topics")
    assert status == 502
    assert told.startswith("no node of the cluster is known")


async def test_secrets_have_no_value(page: Page) -> None:
    settings = (await page.get("node-settings?id=1"))["settings"]
    assert {one["name"]: (one["value"], one["is_secret"]) for one in settings} == {
        "num.partitions": ("3", False),
        "ssl.key.password": (None, True),
    }


async def test_nothing_is_changed_unless_that_was_allowed() -> None:
    page = Page(MemoryAdmin())
    status, told = await page.change("end-transaction", transactional_id="till", producer_id=5, started_ms=1000)
    assert status == 403
    assert "--allow-changes" in told
    assert page.admin.fenced == []


async def test_the_transaction_that_was_shown_is_ended(page: Page) -> None:
    done = await page.change("end-transaction", transactional_id="till", producer_id=5, started_ms=1000)
    assert "was aborted" in done
    assert page.admin.fenced == ["till"]


@pytest.mark.parametrize("shown", [{"producer_id": 6, "started_ms": 1000}, {"producer_id": 5, "started_ms": 999}, {}])
async def test_another_transaction_than_the_one_that_was_shown_is_left_alone(page: Page, shown: dict[str, int]) -> None:
    status, told = await page.change("end-transaction", transactional_id="till", **shown)
    assert status == 409
    assert "nothing was done" in told
    assert page.admin.fenced == []


async def test_a_transaction_that_has_ended_meanwhile_is_not_fenced(page: Page) -> None:
    done = TransactionDescription("till", "CompleteCommit", 5, 0, 60_000, 1000, frozenset(), 1)
    page.admin.transaction = done
    status, _ = await page.change("end-transaction", transactional_id="till", producer_id=5, started_ms=1000)
    assert status == 409
    assert page.admin.fenced == []


MOVE = {"topic": "topic-00000", "partition": 0, "committed": 5, "new": 2}


async def test_a_group_is_set_to_what_was_previewed(page: Page) -> None:
    await page.change("reset-group", name="group-0000", moves=[MOVE])
    assert page.admin.committed == {TopicPartition("topic-00000", 0): 2}


async def test_a_group_that_has_moved_since_the_preview_is_left_alone(page: Page) -> None:
    page.admin.committed[TopicPartition("topic-00000", 0)] = 9
    status, told = await page.change("reset-group", name="group-0000", moves=[MOVE])
    assert status == 409
    assert "stands at 9 now" in told
    assert page.admin.committed == {TopicPartition("topic-00000", 0): 9}


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("delete-topic", {"name": "topic-00000", "confirm": "topic"}, "type its name"),
        ("delete-group", {"name": "group-0000"}, "type its name"),
        ("trim-topic", {"name": "topic-00000", "before": "7d"}, "type its name"),
        ("reset-group", {"name": "group-0000", "moves": [{"topic": 5}]}, "moves"),
        ("create-topic", {"name": ["x"]}, "name is missing"),
        ("create-topic", {"name": "x", "partitions": "three"}, "whole number"),
        ("alter-topic", {"name": "topic-00000", "set": {"a": 5}}, "settings"),
        ("no-such-change", {}, "no change"),
    ],
)
async def test_a_change_that_is_not_understood_is_refused(page: Page, name: str, given: Any, told: str) -> None:
    status, sentence = await page.change(name, **given)
    assert status == 400
    assert told in sentence


async def test_every_address_of_the_page_is_the_page(page: Page) -> None:
    for path in ("/", "/topics", "/topics/%3Cscript%3E/messages", "/groups/a%2Fb"):
        answer = await page.browser.get(path)
        assert answer.status_code == 200
        assert 'src="/static/main.js"' in answer.text
    assert (await page.browser.get("/static/../app.py")).text.startswith("<!doctype html>")
    assert (await page.browser.get("/static/%2e%2e/app.py")).status_code == 404


def test_every_view_can_be_followed_at_a_pace() -> None:
    assert all(every_s >= 1 for _, every_s in VIEWS.values())


async def test_what_is_followed_is_sent_when_it_changes_and_failures_are_told() -> None:
    closing = asyncio.Event()
    answers: list[Any] = [{"a": 1}, {"a": 1}, Disconnected("gone"), {"a": 2}]

    async def ask() -> Any:
        answer = answers.pop(0)
        if not answers:
            closing.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    first, problem, last = [one async for one in documents(ask, 0.001, closing)]
    assert first == 'event: document\ndata: {"a":1}\n\n'
    assert problem.startswith('event: problem\ndata: {"error":"gone')
    assert last == 'event: document\ndata: {"a":2}\n\n'


async def test_a_dear_answer_is_kept_and_a_failure_is_not() -> None:
    asked: list[int] = []

    async def ask() -> int:
        asked.append(1)
        if len(asked) == 1:
            raise Disconnected("gone")
        return len(asked)

    cached = Cached(ask, 60)
    with pytest.raises(Disconnected):
        await cached.get()
    assert [await cached.get(), await cached.get()] == [2, 2]
    cached.forget()
    assert await cached.get() == 3


def test_turns_go_through_all_and_begin_again() -> None:
    turns = Turns()
    names = ["a", "b", "c", "d", "e"]
    assert [turns.next(names, 2) for _ in range(3)] == [["a", "b"], ["c", "d"], ["e", "a"]]
    assert turns.next(["x"], 5) == ["x"]
    assert turns.next([], 5) == []


def test_samples_are_bounded_and_have_a_rate() -> None:
    series = Series()
    for number in range(1000):
        series.add(number * 1000, number * 50.0)
    assert len(series.document()[0]) == 360
    assert series.rate == 50
    many = SeriesByName()
    for number in range(3000):
        many.add(f"{number}", 0, 1.0)
    assert many.get("0").last is None
    assert many.get("2999").last == 1.0

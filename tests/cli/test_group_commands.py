"""`semel group` on running brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from command_calls import Semel

from semel.cli.failures import Exit
from semel.sync import Consumer

Unique = Callable[[str], str]
JOIN_TIMEOUT_S = 30.0


@pytest.fixture
def read(semel: Semel, topic: str, unique: Unique) -> str:
    """A group that has read ten records of partition 0 and one of partition 1, a second apart."""
    group = unique("group")
    lines = b"".join(b'{"value": "%d", "timestamp_ms": %d}\n' % (n, 1_700_000_000_000 + n * 1000) for n in range(10))
    semel("produce", topic, "--partition", "0", "--input", "json", stdin=lines)
    semel("produce", topic, "x", "--partition", "1")
    assert len(semel("consume", topic, "--group", group).lines) == 11
    return group


def committed(semel: Semel, group: str) -> dict[int, int | None]:
    (document,) = semel("group", "describe", group, "--json").document
    return {one["partition"]: one["committed"] for one in document["partitions"]}


def new_offsets(document: dict[str, Any]) -> dict[int, int]:
    return {one["partition"]: one["new"] for one in document["partitions"]}


def test_groups_are_listed_and_described(semel: Semel, topic: str, read: str) -> None:
    row = next(line for line in semel("group", "list").lines if line.startswith(read))
    assert row.split() == [read, "Empty", "classic"]
    assert read in semel("group", "list", "--names", "--state", "Empty").lines
    assert read not in semel("group", "list", "--names", "--state", "Stable").lines
    semel("produce", topic, "more", "more", "--partition", "1")
    lines = semel("group", "describe", read).lines
    assert lines[0].split() == ["group", read]
    assert "no active members" in lines
    assert [line.split() for line in lines if line.startswith(topic)][:2] == [
        [topic, "0", "10", "10", "0"],
        [topic, "1", "1", "3", "2"],
    ]


def test_members_are_shown_with_who_they_are_and_what_they_read(semel: Semel, topic: str, unique: Unique) -> None:
    group = unique("group")
    with member(semel, group, topic):
        (document,) = semel("group", "describe", group, "--json").document
        lines = semel("group", "describe", group).lines

    (found,) = document["members"]
    assert document["state"] == "Stable"
    assert (found["client_id"], found["host"]) == ("till-7", "127.0.0.1")
    assert found["partitions"] == [f"{topic}/{number}" for number in range(3)]
    assert any(line.startswith("till-7  127.0.0.1") for line in lines)


def test_a_group_that_is_not_there_is_told(semel: Semel, unique: Unique) -> None:
    name = unique("nobody")

    assert f"there is no group '{name}'" in semel("group", "describe", name, code=Exit.NOT_FOUND).err
    nothing = semel("group", "reset", name, "--to", "earliest", code=Exit.NOT_FOUND)
    assert f"group '{name}' has committed nothing: name topics with --topic" in nothing.err


# -- reset


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        (("--to", "earliest"), {0: 0, 1: 0, 2: 0}),
        (("--to", "latest"), {0: 10, 1: 1, 2: 0}),
        (("--to", "4"), {0: 4, 1: 1, 2: 0}),
        (("--to", "-3"), {0: 7, 1: 0, 2: 0}),
        (("--to", "@1700000003500"), {0: 4, 1: 0, 2: 0}),
        (("--to", "20000d"), {0: 0, 1: 0, 2: 0}),
        (("--to", "2100-01-01"), {0: 10, 1: 1, 2: 0}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_reset_shows_what_it_would_do_and_does_it_when_told_to(
    semel: Semel, topic: str, read: str, where: tuple[str, str], offsets: dict[int, int]
) -> None:
    before = committed(semel, read)
    shown = semel("group", "reset", read, *where, "--topic", topic)
    assert "nothing was changed: --execute does it" in shown.err
    assert [int(line.split()[3]) for line in shown.lines[1:]] == list(offsets.values())
    assert committed(semel, read) == before
    done = semel("group", "reset", read, *where, "--topic", topic, "--execute")
    assert done.lines == shown.lines
    assert f"group {read} is set" in done.err
    assert committed(semel, read) == offsets


def test_a_shift_is_relative_and_stays_within_the_log(semel: Semel, topic: str, read: str) -> None:
    document = semel("group", "reset", read, "--shift", "-4", "--topic", f"{topic}/0", "--execute", "--json").document
    assert document["executed"] is True
    assert new_offsets(document) == {0: 6}
    shown = semel("group", "reset", read, "--shift", "-100", "--topic", f"{topic}/0")
    assert shown.lines[1].split(maxsplit=6) == [topic, "0", "6", "0", "-6", "10", "-94 is not in the log"]
    (clamped,) = semel("group", "reset", read, "--shift", "100", "--topic", f"{topic}/0", "--json").document[
        "partitions"
    ]
    assert (clamped["new"], clamped["clamped_from"]) == (10, 106)
    assert semel("consume", topic, "--group", read).lines == ["6", "7", "8", "9"]


def test_without_topics_all_that_was_committed_is_set(semel: Semel, topic: str, read: str) -> None:
    document = semel("group", "reset", read, "--to", "earliest", "--json").document

    assert document["executed"] is False
    assert {(one["topic"], one["partition"]) for one in document["partitions"]} >= {(topic, 0), (topic, 1)}


def test_a_group_can_be_set_before_it_has_read(semel: Semel, topic: str, read: str, unique: Unique) -> None:
    group = unique("new")
    semel("group", "reset", group, "--to", "8", "--topic", f"{topic}/0", "--execute")

    assert sorted(semel("consume", topic, "--group", group, "--from", "latest").lines) == ["8", "9"]
    shifted = semel("group", "reset", unique("nobody"), "--shift", "1", "--topic", topic, code=Exit.NOT_FOUND)
    assert f"has committed nothing for {topic}/0, so there is nothing to shift" in shifted.err


def test_a_reset_is_refused_while_members_are_active(semel: Semel, topic: str, read: str) -> None:
    with member(semel, read, topic):
        shown = semel("group", "reset", read, "--to", "earliest")
        refused = semel("group", "reset", read, "--to", "earliest", "--execute", code=Exit.FAILED)
    sentence = f"group '{read}' has 1 active member (till-7 at 127.0.0.1), who commit for themselves: stop them first"

    assert sentence in refused.err
    assert sentence in shown.err
    assert set(committed(semel, read).values()) != {0}


def test_a_partition_that_is_not_there_is_told(semel: Semel, topic: str, read: str) -> None:
    called = semel("group", "reset", read, "--to", "earliest", "--topic", f"{topic}/3", code=Exit.NOT_FOUND)

    assert f"topic '{topic}' has no partition 3; it has 3 partitions" in called.err


def member(semel: Semel, group: str, topic: str) -> Consumer:
    """Somebody who reads, and has got all partitions."""
    consumer = Consumer(
        topic, bootstrap_servers=semel.address, group_id=group, client_id="till-7", enable_auto_commit=False
    )
    deadline_s = time.monotonic() + JOIN_TIMEOUT_S
    while len(consumer.assignment()) < 3:
        assert time.monotonic() < deadline_s, "not a member in time"
        consumer.poll(100)
    return consumer


# -- delete


def test_a_group_is_deleted_with_its_offsets_when_nobody_is_in_it(semel: Semel, topic: str, read: str) -> None:
    asked = semel("group", "delete", read, stdin=b"yes\n", code=Exit.WRONG_CALL)
    assert "say --yes if it is meant" in asked.err
    with member(semel, read, topic):
        assert "NON_EMPTY_GROUP" in semel("group", "delete", read, "--yes", code=Exit.FAILED).err
    assert committed(semel, read), "it is still there"

    assert semel("group", "delete", read, "--yes").out == f"deleted group {read}\n"
    assert read not in semel("group", "list", "--names").lines
    assert f"group '{read}'" in semel("group", "delete", read, "--yes", code=Exit.NOT_FOUND).err

"""`semel topic` on running brokers."""

from __future__ import annotations

from collections.abc import Callable

from command_calls import Semel

from semel.cli.failures import Exit

Unique = Callable[[str], str]


def test_a_topic_is_created_listed_described_and_deleted(semel: Semel, unique: Unique) -> None:
    name = unique("topic")

    assert semel("topic", "create", name, "--partitions", "2").out == f"created topic {name} with 2 partitions\n"
    row = next(line for line in semel("topic", "list").lines if line.startswith(name))
    assert row.split() == [name, "2", "1"]
    assert name in semel("topic", "list", "--names").lines
    described = semel("topic", "describe", name).lines
    assert described[0].split() == ["topic", name]
    assert [line.split()[0] for line in described[-2:]] == ["0", "1"]
    assert semel("topic", "delete", name, "--yes").out == f"deleted topic {name}\n"
    assert name not in semel("topic", "list", "--names").lines


def test_a_number_of_replicas_in_sync_that_a_topic_does_not_have_is_told(semel: Semel, unique: Unique) -> None:
    name = unique("topic")
    semel("topic", "create", name, "--config", "min.insync.replicas=2")
    semel("produce", name, stdin=b"one\n")

    told = "min.insync.replicas is 2, but counts as 1 where there are no more replicas\n"
    assert semel("topic", "describe", name).err == told
    semel("topic", "alter", name, "--reset", "min.insync.replicas")
    assert semel("topic", "describe", name).err == ""


def test_several_topics_at_once_and_those_that_could_not_be_made_are_told(semel: Semel, unique: Unique) -> None:
    one, two = unique("topic"), unique("topic")
    semel("topic", "create", one)
    called = semel("topic", "create", one, two, code=Exit.FAILED)

    assert called.lines[0].startswith(f"created topic {two}")
    assert f"creating topic '{one}': TOPIC_ALREADY_EXISTS" in called.err
    assert called.err.count("\n") == 1
    again = semel("topic", "create", one, two, "--if-not-exists")
    assert again.lines == [f"topic {one} was there already", f"topic {two} was there already"]


def test_json_tells_the_same_to_programs(semel: Semel, unique: Unique) -> None:
    name = unique("topic")
    (made,) = semel("topic", "create", name, "--partitions", "3", "--config", "retention.ms=1000000", "--json").document
    assert (made["name"], made["created"], made["partitions"], made["replication"]) == (name, True, 3, 1)
    assert semel("topic", "create", name, "--if-not-exists", "--json").document == [{"name": name, "created": False}]
    listed = next(one for one in semel("topic", "list", "--json").document if one["name"] == name)
    assert listed == {"name": name, "id": made["id"], "partitions": 3, "replication": 1, "internal": False}
    semel("produce", name, "a", "b", "--partition", "1")
    (described,) = semel("topic", "describe", name, "--json").document
    assert described["settings"]["retention.ms"] == {"value": "1000000", "source": "topic"}
    assert [(one["partition"], one["start_offset"], one["end_offset"]) for one in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 2),
        (2, 0, 0),
    ]
    assert semel("topic", "delete", name, "--yes", "--json").document == [{"name": name, "deleted": True}]


def test_settings_and_partitions_are_altered(semel: Semel, topic: str) -> None:
    changes = ("--partitions", "5", "--config", "retention.ms=5000", "--config", "cleanup.policy=compact")
    assert semel("topic", "alter", topic, *changes).lines == [
        f"{topic}: retention.ms is 5000 now",
        f"{topic}: cleanup.policy is compact now",
        f"{topic}: 5 partitions now",
    ]
    described = semel("topic", "describe", topic).out
    assert "retention.ms    5000" in described
    assert len(semel("topic", "describe", topic, "--json").document[0]["partitions"]) == 5
    assert semel("topic", "alter", topic, "--reset", "retention.ms", "--json").document == {
        "name": topic,
        "set": {},
        "reset": ["retention.ms"],
    }
    assert "retention.ms" not in semel("topic", "describe", topic).out
    assert "retention.ms" in semel("topic", "describe", topic, "--all-settings").out


def test_partitions_cannot_be_taken_away_and_nothing_is_no_change(semel: Semel, topic: str) -> None:
    fewer = semel("topic", "alter", topic, "--partitions", "2", "--config", "retention.ms=1", code=Exit.WRONG_CALL)
    assert "has 3 partitions, and none can be taken away" in fewer.err
    assert "retention.ms" not in semel("topic", "describe", topic).out, "nothing else was changed either"
    assert "nothing to change" in semel("topic", "alter", topic, code=Exit.WRONG_CALL).err
    assert "retention.ms" in semel("topic", "alter", topic, "--config", "retention.ms=x", code=Exit.FAILED).err


def test_what_is_not_there_is_told_with_what_to_do(semel: Semel, topic: str, unique: Unique) -> None:
    name = unique("nothing")
    for arguments in (
        ("topic", "describe", topic, name),
        ("topic", "alter", name, "--partitions", "3"),
        ("topic", "delete", topic, name, "--yes"),
        ("consume", name),
        ("txn", "why-stuck", f"{name}/0"),
        ("group", "reset", "g", "--to", "earliest", "--topic", name),
    ):
        called = semel(*arguments, code=Exit.NOT_FOUND)
        assert called.out == ""
        assert f"there is no topic '{name}'; semel topic list shows what there is" in called.err
    assert topic in semel("topic", "list", "--names").lines, "nothing was deleted"
    assert name not in semel("topic", "list", "--names").lines, "nothing was created"
    called = semel("topic", "delete", name, "--yes", "--if-exists")
    assert called.out == f"topic {name} was not there\n"


def test_nothing_is_deleted_where_nobody_can_be_asked(semel: Semel, topic: str) -> None:
    called = semel("topic", "delete", topic, stdin=b"yes\n", code=Exit.WRONG_CALL)

    assert "say --yes if it is meant" in called.err
    assert topic in semel("topic", "list", "--names").lines


def test_internal_topics_are_shown_when_asked_for(semel: Semel, topic: str, unique: Unique) -> None:
    semel("produce", topic, "x")
    semel("consume", topic, "--group", unique("group"))

    assert "__consumer_offsets" not in semel("topic", "list", "--names").lines
    assert "__consumer_offsets" in semel("topic", "list", "--names", "--internal").lines


# -- trim


def test_the_oldest_records_are_deleted_when_it_is_told_to(semel: Semel, topic: str) -> None:
    semel("produce", topic, *"abcdef", "--partition", "0")
    semel("produce", topic, *"xyz", "--partition", "1")
    shown = semel("topic", "trim", topic, "--before", "-2")
    assert [line.split()[1:] for line in shown.lines[1:3]] == [["0", "0", "4", "6", "4"], ["1", "0", "1", "3", "1"]]
    assert "nothing was deleted: --execute does it" in shown.err
    assert semel("consume", topic, "--partition", "0").lines == list("abcdef")

    done = semel("topic", "trim", f"{topic}/0", "--before", "-2", "--execute", "--json").document
    place = {"topic": topic, "partition": 0, "start_offset": 0, "new_start_offset": 4, "end_offset": 6}
    assert done == {"executed": True, "partitions": [place]}
    assert semel("consume", topic, "--partition", "0").lines == ["e", "f"]
    assert semel("consume", topic, "--partition", "1").lines == list("xyz")
    again = semel("topic", "trim", f"{topic}/0", "--before", "2", "--execute")
    assert again.err == "0 offsets deleted\n", "what is gone is not brought back, and that is no error"
    assert f"topic '{topic}' has no partition 7" in (
        semel("topic", "trim", f"{topic}/7", "--before", "1", code=Exit.NOT_FOUND).err
    )

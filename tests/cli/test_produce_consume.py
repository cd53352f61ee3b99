"""`semel produce` and `semel consume` on running brokers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from command_calls import Semel

from semel.cli.failures import Exit

Unique = Callable[[str], str]


def test_lines_go_in_and_come_out_in_order(semel: Semel, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(20_000))

    assert semel("produce", topic, "--partition", "1", stdin=lines).out == f"sent 20,000 records to {topic}\n"
    assert semel("consume", topic).raw == lines


def test_a_last_line_need_not_end_and_an_empty_one_is_a_record(semel: Semel, topic: str) -> None:
    semel("produce", topic, "--partition", "0", stdin=b"a\n\nb")

    assert semel("consume", topic).raw == b"a\n\nb\n"
    assert semel("produce", topic, stdin=b"").out == f"sent 0 records to {topic}\n"


def test_bytes_pass_through_a_pipe_as_they_are(semel: Semel, topic: str) -> None:
    value = bytes(range(256)).replace(b"\n", b"")
    semel("produce", topic, stdin=value + b"\n")

    assert semel("consume", topic).raw == value + b"\n"


def test_a_record_of_the_command_line_has_key_headers_and_time(semel: Semel, topic: str) -> None:
    place = ("--partition", "2", "--timestamp", "2026-11-15T10:00Z", "--header", "a=1", "--header", "b=x=y")
    sent = semel("produce", topic, "10.00 EUR", "--key", "42", *place)
    assert sent.out == f"sent 1 record to {topic}: partition 2, offset 0\n"
    (record,) = semel("consume", topic, "--json").documents

    assert record == {
        "topic": topic,
        "partition": 2,
        "offset": 0,
        "timestamp_ms": 1_794_736_800_000,
        "key": "42",
        "value": "10.00 EUR",
        "headers": [["a", "1"], ["b", "x=y"]],
    }


def test_a_line_is_split_into_key_and_value(semel: Semel, topic: str) -> None:
    semel("produce", topic, "--key-separator", "::", "--partition", "0", stdin=b"1::a\n2::b::c\nno key\n::empty\n")

    found = [(one["key"], one["value"]) for one in semel("consume", topic, "--json").documents]
    assert found == [("1", "a"), ("2", "b::c"), (None, "no key"), ("", "empty")]


def test_a_record_without_a_value_is_told_from_an_empty_one(semel: Semel, topic: str) -> None:
    semel("produce", topic, "--key", "k", "--null", "--partition", "0")
    semel("produce", topic, "", "--key", "k", "--partition", "0")

    assert [one["value"] for one in semel("consume", topic, "--json").documents] == [None, ""]


def test_a_copy_as_json_is_the_same_but_for_its_place(semel: Semel, topic: str, unique: Unique) -> None:
    copy = unique("copy")
    semel("topic", "create", copy)
    semel("produce", topic, "--key", "k", "--null", "--header", "h=v")
    semel("produce", topic, stdin=b"\xff\x00\n")
    original = semel("consume", topic, "--json")
    semel("produce", copy, "--input", "json", stdin=original.raw)

    def without_place(lines: list[dict[str, object]]) -> list[str]:
        return sorted(
            json.dumps([one[name] for name in ("key", "value", "headers", "timestamp_ms")], sort_keys=True)
            for one in lines
        )

    assert without_place(semel("consume", copy, "--json").documents) == without_place(original.documents)


def test_a_copy_keeps_partitions_where_it_has_them_and_tells_where_not(
    semel: Semel, topic: str, unique: Unique
) -> None:
    for number in range(3):
        semel("produce", topic, str(number), "--partition", str(number))
    original = semel("consume", topic, "--json")
    alike, narrow = unique("alike"), unique("narrow")
    semel("topic", "create", alike, "--partitions", "3")
    semel("topic", "create", narrow, "--partitions", "1")

    semel("produce", alike, "--input", "json", stdin=original.raw)
    told = semel("produce", narrow, "--input", "json", stdin=original.raw)

    copied = semel("consume", alike, "--json").documents
    assert sorted((one["partition"], one["value"]) for one in copied) == [(0, "0"), (1, "1"), (2, "2")]
    assert len(semel("consume", narrow, "--json").documents) == 3
    assert "has 1 partition, and records come from partition" in told.err


def test_json_tells_where_each_record_was_written(semel: Semel, topic: str) -> None:
    written = semel("produce", topic, "a", "b", "--partition", "1", "--json").documents

    assert [(one["topic"], one["partition"], one["offset"]) for one in written] == [(topic, 1, 0), (topic, 1, 1)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nope", "it is no JSON"),
        (b"[1]", "it is no JSON object"),
        (b'{"valu": 1}', "'valu' is unknown; known are"),
        (b'{"timestamp_ms": "now"}', "timestamp_ms is no number"),
        (b'{"headers": [1]}', "headers: allowed are"),
    ],
)
def test_a_line_that_is_no_record_is_told_and_those_before_it_are_written(
    semel: Semel, topic: str, line: bytes, problem: str
) -> None:
    called = semel("produce", topic, "--input", "json", stdin=b'{"value": "x"}\n' + line + b"\n{}\n", code=Exit.FAILED)

    assert f"1 record written, then it failed: line 2 of standard input is no record: {problem}" in called.err
    assert semel("consume", topic).lines == ["x"]


def test_a_transaction_is_all_or_nothing(semel: Semel, topic: str, unique: Unique) -> None:
    transactional_id = unique("id")
    in_one = ("--transactional-id", transactional_id, "--input", "json", "--partition", "0")
    called = semel("produce", topic, *in_one, stdin=b'{"value": "x"}\nnope\n', code=Exit.FAILED)
    assert "the transaction was not committed, and no record counts" in called.err
    assert semel("consume", topic).out == ""
    semel("produce", topic, *in_one, stdin=b'{"value": "a"}\n{"value": "b"}\n')
    assert semel("consume", topic).lines == ["a", "b"]
    assert semel("consume", topic, "--isolation", "uncommitted").lines == ["x", "a", "b"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "t", "x", "--null"),
        ("produce", "t", "--key", "k", "--key-separator", ":"),
        ("produce", "t", "--key-separator", ""),
        ("produce", "t", "x", "--input", "json"),
        ("produce", "t", "x", "--header", "novalue"),
        ("produce", "t", "x", "--set", "acks=1"),
        ("consume", "t", "--json", "--format", "{value}"),
        ("consume", "t", "--group", "g", "--partition", "0"),
        ("consume", "t", "--group", "g", "--from", "10"),
        ("consume", "t", "--format", "{nope}"),
        ("consume", "t", "--set", "fetch.min.byte=1"),
    ],
    ids=" ".join,
)
def test_a_contradiction_is_a_wrong_call(semel: Semel, arguments: tuple[str, ...]) -> None:
    called = semel(*arguments, code=Exit.WRONG_CALL)

    assert called.err.startswith(f"semel {arguments[0]}: ")
    assert called.err.count("\n") == 1


# -- from where, how many


@pytest.fixture
def numbered(semel: Semel, topic: str) -> str:
    """Ten records in partition 0, a second apart, and one in partition 1."""
    lines = b"".join(b'{"value": "%d", "timestamp_ms": %d}\n' % (n, 1_700_000_000_000 + n * 1000) for n in range(10))
    semel("produce", topic, "--partition", "0", "--input", "json", stdin=lines)
    semel("produce", topic, "other", "--partition", "1", "--timestamp", "@1600000000000")
    return topic


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--from", "earliest"], "0123456789"),
        (["--from", "latest"], ""),
        (["--from", "7"], "789"),
        (["--from", "100"], ""),
        (["--from", "-2"], "89"),
        (["--from", "-100"], "0123456789"),
        (["--from", "@1700000005000"], "56789"),
        (["--from", "@1700000005001"], "6789"),
        (["--from", "2023-11-14T22:13:28Z"], "89"),
        (["--from", "1d"], ""),
        (["--from", "20000d"], "0123456789"),
        (["--from", "3", "--count", "4"], "3456"),
    ],
    ids=" ".join,
)
def test_reading_begins_where_it_was_told_to(semel: Semel, numbered: str, arguments: list[str], values: str) -> None:
    assert semel("consume", numbered, "--partition", "0", *arguments).lines == list(values)


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--to", "3"], "012"),
        (["--to", "earliest"], ""),
        (["--to", "latest"], "0123456789"),
        (["--from", "-3", "--to", "-1"], "78"),
        (["--from", "8", "--to", "3"], ""),
        (["--from", "@1700000002000", "--to", "@1700000004000"], "23"),
        (["--to", "5", "--count", "2"], "01"),
    ],
    ids=" ".join,
)
def test_reading_ends_where_it_was_told_to(semel: Semel, numbered: str, arguments: list[str], values: str) -> None:
    assert semel("consume", numbered, "--partition", "0", *arguments).lines == list(values)


@pytest.mark.parametrize("other", [["--follow"], ["--group", "g"]], ids=" ".join)
def test_an_end_contradicts_what_has_another(semel: Semel, numbered: str, other: list[str]) -> None:
    called = semel("consume", numbered, "--to", "3", *other, code=Exit.WRONG_CALL)

    assert f"--to contradicts {other[0]}" in called.err


@pytest.mark.parametrize(("start", "told"), [("100", "ends at offset 10, not 100"), ("3", None)])
def test_a_start_that_the_log_does_not_have_is_told(semel: Semel, numbered: str, start: str, told: str | None) -> None:
    said = semel("consume", numbered, "--partition", "0", "--from", start).err

    assert said == ("" if told is None else f"{numbered}/0 {told}\n")


def test_partitions_are_chosen(semel: Semel, numbered: str) -> None:
    assert semel("consume", numbered, "--partition", "1").lines == ["other"]
    assert len(semel("consume", numbered, "--partition", "1", "--partition", "0").lines) == 11
    missing = semel("consume", numbered, "--partition", "3", code=Exit.NOT_FOUND)
    assert "has no partition 3; it has 3 partitions" in missing.err


def test_several_topics_are_read_together(semel: Semel, numbered: str, unique: Unique) -> None:
    other = unique("other")
    semel("topic", "create", other)
    semel("produce", other, "more")

    lines = semel("consume", numbered, other, "--format", "{topic} {value}").lines
    assert f"{other} more" in lines
    assert f"{numbered} 9" in lines
    assert len(lines) == 12


def test_a_format_is_a_line_for_each_record(semel: Semel, numbered: str) -> None:
    shown = semel("consume", numbered, "--partition", "0", "--count", "2", "--format", r"{partition}@{offset}\t{value}")

    assert shown.out == "0@0\t0\n0@1\t1\n"


# -- groups and transactions


def test_a_group_goes_on_where_it_stopped(semel: Semel, numbered: str, unique: Unique) -> None:
    group = unique("group")
    first = semel("consume", numbered, "--group", group, "--count", "4").lines
    second = semel("consume", numbered, "--group", group).lines

    assert len(first) == 4
    assert sorted(first + second) == sorted([*"0123456789", "other"])
    assert semel("consume", numbered, "--group", group).lines == []
    lags = {one["lag"] for one in semel("group", "describe", group, "--json").document[0]["partitions"]}
    assert lags == {0}


def test_a_group_has_committed_everything_at_the_end(semel: Semel, topic: str, unique: Unique) -> None:
    group = unique("group")
    semel("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(10_000)))

    assert len(semel("consume", topic, "--group", group).lines) == 10_000
    (document,) = semel("group", "describe", group, "--json").document
    assert sum(one["committed"] for one in document["partitions"]) == 10_000


def test_a_group_without_offsets_begins_where_it_was_told_to(semel: Semel, numbered: str, unique: Unique) -> None:
    group = unique("group")
    assert semel("consume", numbered, "--group", group, "--from", "latest").lines == []
    semel("produce", numbered, "new", "--partition", "0")

    assert semel("consume", numbered, "--group", group).lines == ["new"]


def test_control_records_at_the_end_do_not_hold_a_reader_up(semel: Semel, topic: str, unique: Unique) -> None:
    semel("produce", topic, "a", "--partition", "0", "--transactional-id", unique("id"))
    group = unique("group")

    assert semel("consume", topic).lines == ["a"]
    assert semel("consume", topic, "--group", group).lines == ["a"]
    (found,) = [
        one for one in semel("group", "describe", group, "--json").document[0]["partitions"] if one["partition"] == 0
    ]
    assert (found["committed"], found["lag"]) == (2, 0)


def test_nobody_there_is_told_with_its_own_code(semel: Semel) -> None:
    for arguments in (("topic", "list"), ("produce", "t", "x"), ("consume", "t")):
        semel.address = "127.0.0.1:1"
        called = semel(*arguments, "--set", "bootstrap.timeout.ms=50", code=Exit.UNREACHABLE)
        assert "no broker answered at 127.0.0.1:1" in called.err
        assert called.err.count("try again later") == 1
        assert called.err.count("\n") == 1

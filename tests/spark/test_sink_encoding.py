"""Rows to batches: where they go, how large they get, which ones a topic would refuse, and placing them anew."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from semel.client.errors import UnknownTopic
from semel.records.batch import read_header
from semel.records.partitioning import partition_of_key
from semel.records.read import Record, read_records
from semel.spark import encoding
from semel.spark.encoding import Encoded, RowEncoder
from semel.spark.publishing import placed
from semel.spark.sink_errors import RecordRefused, StagedDataLost
from semel.spark.sink_options import Partitioner
from semel.spark.staging import Frame, Placement, StagedTopic
from semel.spark.topic_facts import TopicFacts

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


class Clock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0


class Rig:
    """An encoder over topics that exist on paper only."""

    def __init__(self, *topics: TopicFacts, **options: Any) -> None:
        self.topics = {facts.name: facts for facts in topics}
        self.taken: list[Encoded] = []
        chosen: dict[str, Any] = {
            "topic": topics[0].name if topics else None,
            "dead_letter_topic": None,
            "partitioner": Partitioner.MURMUR2,
            "codec": 0,
            "level": None,
            "first_turn": 0,
            **options,
        }
        self.encoder = RowEncoder(lambda *parts: self.taken.append(Encoded(*parts)), self.facts, Clock(), **chosen)

    def facts(self, name: str) -> TopicFacts:
        if name not in self.topics:
            raise UnknownTopic(f"topic {name!r} was not found")
        return self.topics[name]

    def encode(self, **columns: Any) -> Rig:
        self.encoder.add(pa.record_batch({name: _array(name, column) for name, column in columns.items()}))
        self.encoder.flush()
        return self

    def records(self, topic: str | None = None) -> list[tuple[int, Record]]:
        return [
            (encoded.partition, record)
            for encoded in self.taken
            if topic in (None, encoded.topic.name)
            for record in read_records(encoded.batch)
        ]

    def values(self, topic: str | None = None) -> list[tuple[int, bytes | None]]:
        return [(partition, record.value) for partition, record in self.records(topic)]


def _array(name: str, column: Any) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    kinds: dict[str, pa.DataType] = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
    return pa.array(column, kinds.get(name))


def topic(name: str = "out", partitions: int = 4, **facts: Any) -> TopicFacts:
    return TopicFacts(name, partitions, **facts)


# -- where rows go


def test_rows_with_keys_go_where_any_client_would_send_them() -> None:
    keys = [b"key-%d" % number for number in range(50)]
    rig = Rig(topic(partitions=7)).encode(key=keys, value=keys)
    assert {value: partition for partition, value in rig.values()} == {key: partition_of_key(key, 7) for key in keys}
    assert {encoded.placement for encoded in rig.taken} == {Placement.HASHED}


def test_rows_of_a_key_stay_in_order_over_many_additions() -> None:
    rig = Rig(topic())
    for start in range(0, 100, 10):
        numbers = range(start, start + 10)
        rig.encoder.add(
            pa.record_batch({"key": pa.array([b"k"] * 10), "value": pa.array([b"%d" % n for n in numbers])})
        )
    rig.encoder.flush()
    assert [value for _, value in rig.values()] == [b"%d" % number for number in range(100)]


def test_text_is_written_as_utf8() -> None:
    rig = Rig(topic()).encode(key=pa.array(["ключ"]), value=pa.array(["wért"]))
    ((_, record),) = rig.records()
    assert (record.key, record.value) == ("ключ".encode(), "wért".encode())


def test_rows_without_keys_take_turns_by_the_batch() -> None:
    rig = Rig(topic(partitions=3))
    for _ in range(3):
        rig.encode(value=[b"a", b"b"])
    assert [encoded.partition for encoded in rig.taken] == [1, 2, 0]
    assert Rig(topic(partitions=3), first_turn=1).encode(value=[b"a"]).taken[0].partition == 2


def test_the_column_partition_decides_and_may_be_null() -> None:
    rig = Rig(topic()).encode(key=[b"a", b"b"], value=[b"1", b"2"], partition=[3, 0])
    assert rig.values() == [(0, b"2"), (3, b"1")]
    assert {encoded.placement for encoded in rig.taken} == {Placement.PINNED}
    rig = Rig(topic()).encode(key=[b"a", b"b"], value=[b"1", b"2"], partition=[3, None])
    assert sorted(rig.values()) == sorted([(3, b"1"), (partition_of_key(b"b", 4), b"2")])
    assert {encoded.placement for encoded in rig.taken} == {Placement.MIXED}
    rig = Rig(topic()).encode(key=[b"a"], value=[b"1"], partition=[None])
    assert {encoded.placement for encoded in rig.taken} == {Placement.HASHED}


def test_partitioners_without_regard_to_keys() -> None:
    rows = {"key": [b"same"] * 8, "value": [b"%d" % number for number in range(8)]}
    rig = Rig(topic(), partitioner=Partitioner.ROUND_ROBIN).encode(**rows)
    assert sorted(partition for partition, _ in rig.values()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {encoded.placement for encoded in rig.taken} == {Placement.FREE}
    rig = Rig(topic(), partitioner=Partitioner.STICKY).encode(**rows).encode(**rows)
    assert [encoded.partition for encoded in rig.taken] == [1, 2]
    rig = Rig(topic(), partitioner=Partitioner.ROUND_ROBIN).encode(value=[b"1", b"2"], partition=[None, 3])
    assert dict((value, partition) for partition, value in rig.values())[b"2"] == 3  # noqa: C402
    assert {encoded.placement for encoded in rig.taken} == {Placement.PINNED}


def test_the_column_topic_decides_unless_the_option_does() -> None:
    one, two = topic("one", 1), topic("two", 1)
    rig = Rig(one, two, topic=None).encode(value=[b"1", b"2", b"3"], topic=["one", "two", "one"])
    assert [value for _, value in rig.values("one")] == [b"1", b"3"]
    assert [value for _, value in rig.values("two")] == [b"2"]
    rig = Rig(one, two).encode(value=[b"1", b"2"], topic=["two", "two"])
    assert [value for _, value in rig.values("one")] == [b"1", b"2"]


# -- sizes


def test_batches_stay_below_what_the_topic_takes() -> None:
    rig = Rig(topic(partitions=1, max_batch_bytes=2000)).encode(value=[b"x" * 150] * 100)
    assert max(len(encoded.batch) for encoded in rig.taken) <= 2000
    assert sum(encoded.record_count for encoded in rig.taken) == 100
    assert min(len(encoded.batch) for encoded in rig.taken[:-1]) > 1500


def test_many_rows_are_gathered_into_large_batches() -> None:
    rig = Rig(topic(partitions=8))
    for _ in range(40):
        rig.encoder.add(
            pa.record_batch({"key": pa.array([b"%d" % n for n in range(500)]), "value": [b"x" * 100] * 500})
        )
    assert rig.taken == [], "40 times 55 KB is not enough yet"
    rig.encoder.flush()
    assert len(rig.taken) == 8


def test_what_is_gathered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(topic(partitions=1))
    large = pa.record_batch({"value": pa.array([b"x" * 1000] * 5000)})
    rig.encoder.add(large)
    rig.encoder.add(large)
    assert rig.taken, "10 MB are enough"
    monkeypatch.setattr(encoding, "_MOST_GATHERED_ROWS", 10)
    rig = Rig(topic(partitions=1)).encode(value=[b"x"])
    rig.encoder.add(pa.record_batch({"value": pa.array([b"y"] * 10)}))
    assert len(rig.records()) == 11


def test_the_codec_is_the_topics_own_if_it_has_one() -> None:
    rows = {"value": [b"x" * 1000] * 10}
    assert read_header(Rig(topic(), codec=4).encode(**rows).taken[0].batch).codec == 4
    rig = Rig(topic(codec=3), codec=4).encode(**rows)
    assert read_header(rig.taken[0].batch).codec == 3
    assert rig.taken[0].topic.codec == 3
    assert read_header(Rig(topic(codec=0), codec=4).encode(**rows).taken[0].batch).codec == 0


def test_a_batch_that_its_codec_makes_too_large_goes_uncompressed() -> None:
    import random

    noise = random.Random(1).randbytes(5000)
    plain = len(Rig(topic(partitions=1)).encode(value=[noise]).taken[0].batch)
    rig = Rig(topic(partitions=1, max_batch_bytes=plain), codec=1).encode(value=[noise])
    assert read_header(rig.taken[0].batch).codec == 0
    assert rig.records()[0][1].value == noise


# -- refused rows


REFUSALS: list[tuple[TopicFacts, dict[str, Any], str]] = [
    (
        topic(max_batch_bytes=1000),
        {"value": [b"x" * 2000]},
        "needs 20.. bytes, and the topic's max.message.bytes is 1000",
    ),
    (topic(max_batch_bytes=1000), {"value": [b"x"], "key": [b"k" * 2000]}, "max.message.bytes"),
    (topic(max_batch_bytes=1000), {"value": [b"x"], "headers": [[{"key": "h", "value": b"v" * 2000}]]}, "max.message"),
    (topic(needs_key=True), {"value": [b"x"], "key": [None]}, "no key, and the topic is compacted"),
    (topic(needs_key=True), {"value": [b"x"]}, "no key"),
    (topic(), {"value": [b"x"], "partition": [4]}, "asks for partition 4; the topic has 0 to 3"),
    (topic(), {"value": [b"x"], "partition": [-1]}, "asks for partition -1"),
    (topic(), {"value": [b"x"], "timestamp": [(NOW_MS + 2 * HOUR_MS) * 1000]}, "timestamp"),
    (topic(oldest_ms=HOUR_MS), {"value": [b"x"], "timestamp": [(NOW_MS - HOUR_MS) * 1000]}, "timestamp"),
    (topic(), {"value": [b"x"], "timestamp": [-1000]}, "before 1970"),
]


@pytest.mark.parametrize(("facts", "row", "reason"), REFUSALS)
def test_a_row_that_the_topic_would_refuse_is_named(facts: TopicFacts, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecordRefused, match=reason) as refused:
        Rig(facts).encode(**row)
    assert "a row for topic 'out'" in str(refused.value)
    assert "deadLetterTopic" in str(refused.value)


@pytest.mark.parametrize(("facts", "row", "reason"), REFUSALS)
def test_a_row_that_the_topic_would_refuse_is_set_aside_alone(
    facts: TopicFacts, row: dict[str, Any], reason: str
) -> None:
    good = {"value": b"good", "key": b"key", "partition": 1, "timestamp": NOW_MS * 1000, "headers": []}
    columns = {name: [good[name], *bad, good[name]] for name, bad in row.items()}
    if facts.needs_key:
        columns.setdefault("key", [b"key", None, b"key"])
    rig = Rig(facts, topic("dead", 1), dead_letter_topic="dead").encode(**columns)
    assert [value for _, value in rig.values("out")] == [b"good", b"good"]
    ((_, letter),) = rig.records("dead")
    assert letter.value == row["value"][0]
    headers = dict(letter.headers)
    assert headers["semel.dead-letter.topic"] == b"out"
    assert headers["semel.dead-letter.reason"]


@pytest.mark.parametrize("with_headers", [False, True])
def test_the_limit_holds_to_the_byte(with_headers: bool) -> None:
    limit_bytes = 40_000
    headers = {"headers": [[{"key": f"h{number}", "value": b"v" * number} for number in range(200)]]}
    for key_bytes in (0, 100, 9000):
        sizes = {}
        for value_bytes in range(limit_bytes - 33_000, limit_bytes + 10, 97):
            row = {"key": [b"k" * key_bytes], "value": [b"x" * value_bytes], **(headers if with_headers else {})}
            sizes[value_bytes] = len(Rig(topic(partitions=1)).encode(**row).taken[0].batch)
        fitting = max(value_bytes for value_bytes, size in sizes.items() if size <= limit_bytes)
        exact = fitting + limit_bytes - sizes[fitting]
        for value_bytes in range(exact - 3, exact + 4):
            row = {"key": [b"k" * key_bytes], "value": [b"x" * value_bytes], **(headers if with_headers else {})}
            batch = Rig(topic(partitions=1)).encode(**row).taken[0].batch
            rig = Rig(topic(partitions=1, max_batch_bytes=limit_bytes))
            if len(batch) > limit_bytes:
                with pytest.raises(RecordRefused):
                    rig.encode(**row)
            else:
                rig.encode(**row)
                assert len(rig.taken) == 1


def test_a_dead_letter_keeps_its_key_and_headers() -> None:
    rig = Rig(topic(max_batch_bytes=500), topic("dead", 1), dead_letter_topic="dead")
    rig.encode(key=[b"k"], value=[b"x" * 600], headers=[[{"key": "mine", "value": b"1"}]])
    ((_, letter),) = rig.records("dead")
    assert letter.key == b"k"
    assert letter.headers[0] == ("mine", b"1")


def test_a_large_row_that_compresses_well_is_not_refused() -> None:
    rig = Rig(topic(max_batch_bytes=1000), codec=3).encode(value=[b"x" * 5000, b"small"])
    assert sorted(len(value or b"") for _, value in rig.values()) == [5, 5000]


def test_a_topic_that_stamps_records_itself_takes_any_time() -> None:
    rig = Rig(topic(stamps_itself=True)).encode(value=[b"x"], timestamp=[(NOW_MS + 9 * HOUR_MS) * 1000])
    assert len(rig.records()) == 1


def test_times_and_headers_are_written() -> None:
    at = datetime(2026, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
    rig = Rig(topic()).encode(value=[b"a", b"b"], timestamp=[at, None], headers=[[{"key": "h", "value": None}], None])
    first, second = (record for _, record in rig.records())
    assert first.timestamp_ms == int(at.timestamp() * 1000)
    assert first.headers == (("h", None),)
    assert (second.timestamp_ms, second.headers) == (NOW_MS, ())


def test_rows_without_a_topic_or_for_one_that_there_is_not_are_refused_or_set_aside() -> None:
    out, dead = topic("out", 1), topic("dead", 1)
    for name, reason in ((None, "its topic is null"), ("gone", "was not found")):
        with pytest.raises(RecordRefused, match=reason):
            Rig(out, topic=None).encode(value=[b"1"], topic=[name])
        rig = Rig(out, dead, topic=None, dead_letter_topic="dead").encode(value=[b"1", b"2"], topic=[name, "out"])
        assert [value for _, value in rig.values("dead")] == [b"1"]
        assert [value for _, value in rig.values("out")] == [b"2"]
    with pytest.raises(UnknownTopic):
        Rig(out, topic="gone", dead_letter_topic="dead").encode(value=[b"1"])


def test_a_dead_letter_that_is_refused_too_fails_by_name() -> None:
    rig = Rig(topic(max_batch_bytes=500), topic("dead", 1, max_batch_bytes=500), dead_letter_topic="dead")
    with pytest.raises(RecordRefused, match="topic 'dead'"):
        rig.encode(value=[b"x" * 600])


# -- another number of partitions at the commit


def frames_of(rig: Rig) -> list[Frame]:
    return [Frame(encoded.topic, encoded.placement, encoded.partition, encoded.batch) for encoded in rig.taken]


@pytest.mark.parametrize("codec", [0, 3])
def test_records_placed_by_key_are_placed_anew(codec: int) -> None:
    keys: list[bytes | None] = [b"key-%d" % number for number in range(60)]
    keys[7] = None
    headers = [[{"key": "h", "value": b"%d" % number}] for number in range(60)]
    values = [b"v%d" % number for number in range(60)]
    times = [(NOW_MS - number) * 1000 for number in range(60)]
    rig = Rig(topic(partitions=3), codec=codec).encode(key=keys, value=values, headers=headers, timestamp=times)
    before = {record.value: record for _, record in rig.records()}
    after: dict[Any, Any] = {}
    for frame in frames_of(rig):
        for partition, batch in placed(frame, 8):
            assert read_header(batch).codec == codec
            for record in read_records(batch):
                after[record.value] = (partition, record)
    assert after.keys() == before.keys()
    for value, (partition, record) in after.items():
        assert record[1:] == before[value][1:], "but for its offset a record is what it was"
        if record.key is not None:
            assert partition == partition_of_key(record.key, 8)


def frame(placement: Placement, partition: int) -> Frame:
    return Frame(StagedTopic("out", 4, 1000, 0), placement, partition, bytearray(b"batch"))


def test_other_records_stay_or_are_refused() -> None:
    assert list(placed(frame(Placement.PINNED, 3), 9)) == [(3, b"batch")]
    assert list(placed(frame(Placement.FREE, 3), 2)) == [(1, b"batch")]
    assert list(placed(frame(Placement.MIXED, 3), 4)) == [(3, b"batch")]
    for refused in (frame(Placement.MIXED, 3), frame(Placement.PINNED, 3)):
        with pytest.raises(StagedDataLost, match="had 4 partitions"):
            list(placed(refused, 3))

"""The options and columns of a write, and what is refused of them, with the sentence that says what to do."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql import types
from sink_world import FakeCheckpoint

from semel.client.errors import BadSetting
from semel.spark.checkpoint import Checkpoint
from semel.spark.foreach_batch import publish_each
from semel.spark.sink_options import (
    DEFAULT_MARKER_TOPIC,
    Delivery,
    Partitioner,
    batch_options,
    check_columns,
    stream_options,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
STREAM = {**SERVERS, "topic": "out", "checkpointLocation": "/tmp/checkpoint"}
BATCH = {**SERVERS, "topic": "out"}


def test_defaults() -> None:
    read = stream_options(STREAM)
    assert (read.topic, read.partitioner, read.delivery) == ("out", Partitioner.MURMUR2, Delivery.EXACTLY_ONCE)
    assert (read.transactional_id_prefix, read.dead_letter_topic) == ("", None)
    assert read.marker_topic == DEFAULT_MARKER_TOPIC == "__semel_pipelines"
    assert read.settings.transaction_timeout_ms == 15 * 60_000
    assert read.settings.compression_type == "none"
    assert read.connection["bootstrap_servers"] == "localhost:9092"
    assert "transaction_timeout_ms" not in read.connection


def test_options_are_read_in_any_spelling() -> None:
    read = stream_options(
        {
            **{name.lower(): value for name, value in STREAM.items()},
            "PARTITIONER": "RoundRobin",
            "delivery": "at-least-once",
            "transactionalidprefix": "team-",
            "deadlettertopic": "dead",
            "kafka.compression.type": "zstd",
            "kafka.transaction.timeout.ms": "60000",
            "queryname": "q",
            "path": "x",
        }
    )
    assert read.partitioner is Partitioner.ROUND_ROBIN
    assert read.delivery is Delivery.AT_LEAST_ONCE
    assert (read.transactional_id_prefix, read.dead_letter_topic) == ("team-", "dead")
    assert (read.settings.compression_type, read.settings.transaction_timeout_ms) == ("zstd", 60_000)
    assert pickle.loads(pickle.dumps(read)) == read


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topc": "x"}, "the nearest known option is topic"),
        ({"deadLeterTopic": "x"}, "the nearest known option is deadLetterTopic"),
        ({"subscribe": "in"}, "a write goes to a topic"),
        ({"startingOffsets": "latest"}, "option of the source"),
        ({"partitioner": "random"}, "allowed: murmur2, sticky, roundrobin"),
        ({"delivery": "once"}, "allowed: exactly-once, at-least-once"),
        ({"txnAppId": "a", "txnVersion": "1"}, "not for a streaming write"),
        ({"topic": " "}, "an empty text"),
        ({"kafka.acks": "1"}, "contradicts|acknowledgements of all replicas"),
        ({"kafka.transactional.id": "x"}, "set transactionalIdPrefix"),
        ({"kafka.key.serializer": "x"}, "keys and values are bytes"),
        ({"kafka.bootstrap.server": "x"}, "the nearest known option is kafka.bootstrap.servers"),
        ({"kafka.transaction.timeout.ms": "soon"}, r"^kafka\.transaction\.timeout\.ms: "),
    ],
)
def test_a_wrong_option_of_a_stream_is_refused_by_name(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        stream_options({**STREAM, **options})


def test_a_stream_may_leave_its_checkpoint_to_the_session() -> None:
    without = {name: value for name, value in STREAM.items() if name != "checkpointLocation"}
    assert stream_options({**without, "queryName": "totals"}).query_name == "totals"
    assert stream_options(without).checkpoint_location is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"txnAppId": "a"}, "go together"),
        ({"txnVersion": "1"}, "go together"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "at least 0"),
        ({"txnAppId": "a", "txnVersion": "one"}, "at least 0"),
        ({"txnAppId": "a", "txnVersion": "1", "delivery": "at-least-once"}, "contradicts"),
        ({"txnCheckpoint": "/c"}, "set txnAppId and txnVersion as well"),
        ({"txnAppid2": "a"}, "unknown option"),
    ],
)
def test_a_wrong_option_of_a_batch_is_refused_by_name(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        batch_options({**BATCH, **options})


def test_options_of_a_batch() -> None:
    read = batch_options({**BATCH, "txnAppId": "nightly", "txnVersion": "7", "stagingLocation": "s3://bucket/x"})
    assert (read.txn_app_id, read.txn_version, read.staging_location) == ("nightly", 7, "s3://bucket/x")
    with pytest.raises(BadSetting, match=r"kafka\.bootstrap\.servers is missing"):
        batch_options({"topic": "out"})


# -- columns


def field(name: str, kind: types.DataType) -> types.StructField:
    return types.StructField(name, kind)


TEXT, BYTES, INT = types.StringType(), types.BinaryType(), types.IntegerType()
PAIR = types.StructType([field("key", TEXT), field("value", BYTES)])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ([field("key", TEXT)], "there is no column 'value'.*the columns are: key"),
        ([], "the columns are: none"),
        ([field("value", INT)], "column 'value' is int; it must be string or binary"),
        ([field("value", TEXT), field("key", INT)], "column 'key' is int"),
        ([field("value", TEXT), field("topic", BYTES)], "column 'topic' is binary; it must be string"),
        ([field("value", TEXT), field("partition", TEXT)], "column 'partition' is string; it must be int"),
        ([field("value", TEXT), field("timestamp", types.LongType())], "must be timestamp"),
        ([field("value", TEXT), field("timestamp", types.TimestampNTZType())], "must be timestamp"),
        ([field("value", TEXT), field("headers", TEXT)], "array<struct<key:string,value:binary>>"),
        ([field("value", TEXT), field("headers", types.ArrayType(TEXT))], "array<struct"),
        ([field("value", TEXT), field("value", TEXT)], "there are 2 columns 'value'"),
    ],
)
def test_wrong_columns_are_refused_with_a_sentence(fields: list[types.StructField], sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        check_columns(types.StructType(fields), batch_options(BATCH))


def test_all_columns_are_allowed_in_their_types_and_others_are_left_out() -> None:
    fields = [
        field("key", BYTES),
        field("value", TEXT),
        field("topic", TEXT),
        field("partition", INT),
        field("headers", types.ArrayType(PAIR)),
        field("timestamp", types.TimestampType()),
        field("offset", types.LongType()),
        field("timestampType", INT),
    ]
    check_columns(types.StructType(fields), batch_options(BATCH))
    check_columns(types.StructType([field("value", BYTES), field("key", types.NullType())]), batch_options(BATCH))


def test_a_topic_is_needed_as_option_or_column() -> None:
    with pytest.raises(BadSetting, match="set the option topic, or add a column"):
        check_columns(types.StructType([field("value", TEXT)]), batch_options(SERVERS))
    check_columns(types.StructType([field("value", TEXT), field("topic", TEXT)]), batch_options(SERVERS))


# -- foreachBatch


def test_publish_each_refuses_wrong_options_at_once() -> None:
    with pytest.raises(BadSetting, match="publish_each sets it itself"):
        publish_each("totals", {**BATCH, "TxnVersion": "3"})
    with pytest.raises(BadSetting, match="unknown option"):
        publish_each("totals", {**BATCH, "nonsense": "3"})


# -- checkpoints


def test_a_checkpoint_is_read(tmp_path: Path) -> None:
    fake = FakeCheckpoint(tmp_path / "checkpoint")
    checkpoint = Checkpoint(fake.uri)
    assert checkpoint.query_id() == fake.query_id
    assert (checkpoint.last_planned(), checkpoint.last_completed(), checkpoint.digest(0)) == (None, None, None)
    for batch_id in range(12):
        fake.plan(batch_id)
    fake.complete(9)
    (fake.path / "offsets" / ".11.crc").write_bytes(b"x")
    (fake.path / "offsets" / "13.tmp").write_bytes(b"x")
    assert (checkpoint.last_planned(), checkpoint.last_completed()) == (11, 9)


def test_a_digest_is_of_the_sources_alone(tmp_path: Path) -> None:
    fake = FakeCheckpoint(tmp_path / "checkpoint")
    fake.plan(0, '{"in":{"0":5}}')
    digest = Checkpoint(fake.uri).digest(0)
    path = fake.path / "offsets" / "0"
    version, data, source = path.read_text().split("\n")
    path.write_text("\n".join([version, data.replace("0", "1"), source]))
    assert Checkpoint(fake.uri).digest(0) == digest
    path.write_text("\n".join([version, data, source, "-"]))
    assert Checkpoint(fake.uri).digest(0) != digest
    path.write_text("\n".join([version, data, source.replace("5", "6")]))
    assert Checkpoint(fake.uri).digest(0) != digest


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="give its full URI"):
        Checkpoint(tmp_path.as_uri()).query_id()
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(BadSetting, match="does not name a query"):
        Checkpoint(tmp_path.as_uri()).query_id()

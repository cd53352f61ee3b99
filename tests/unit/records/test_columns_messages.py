"""What a consumer that goes record by record gets of a batch."""

from __future__ import annotations

import gc
import sys
from abc import ABCMeta
from functools import partial
from typing import NamedTuple

import pytest

from semel.records.batch import read_header
from semel.records.build import build_batch
from semel.records.compact import filter_batch
from semel.records.compression import Codec
from semel.records.errors import BatchTooLarge, CorruptBatch, InvalidRecord
from semel.records.read import read_messages

NOW_MS = 1_700_000_000_000


class Message(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("make", [Message, Message._make, partial(tuple.__new__, Message)])
def test_every_record_becomes_a_message(codec: Codec, make: type[Message]) -> None:
    batch = build_batch(
        [b"a", None, b""],
        keys=[None, b"k", b""],
        headers=[[], [("h", b"1"), ("h", None)], []],
        timestamps_ms=[NOW_MS, NOW_MS + 1, NOW_MS - 1],
        base_timestamp_ms=NOW_MS,
        base_offset=40,
        codec=codec,
    )
    messages = read_messages(batch, read_header(batch), "orders", 3, 0, make)
    assert messages == [
        Message("orders", 3, 40, NOW_MS, 0, None, b"a", ()),
        Message("orders", 3, 41, NOW_MS + 1, 0, b"k", None, (("h", b"1"), ("h", None))),
        Message("orders", 3, 42, NOW_MS - 1, 0, b"", b"", ()),
    ]
    assert {type(message) for message in messages} == {Message}
    assert messages[1].headers == (("h", b"1"), ("h", None))


def test_the_time_of_the_append_counts_for_all_records() -> None:
    batch = build_batch([b"a", b"b"], base_timestamp_ms=NOW_MS, timestamps_ms=[1, 2], log_append_time=True)
    messages = read_messages(batch, read_header(batch), "t", 0, 0, Message)
    assert [(m.timestamp_ms, m.timestamp_type) for m in messages] == [(NOW_MS, 1)] * 2


@pytest.mark.parametrize(("first", "expected"), [(0, [5, 7, 8]), (5, [5, 7, 8]), (6, [7, 8]), (8, [8]), (9, [])])
def test_records_before_the_first_offset_are_left_out(first: int, expected: list[int]) -> None:
    batch = filter_batch(build_batch([b"v"] * 4, base_timestamp_ms=NOW_MS, base_offset=5), b"\x01\x00\x01\x01")
    assert batch is not None
    messages = read_messages(batch, read_header(batch), "t", 0, first, Message)
    assert [message.offset for message in messages] == expected


def test_a_class_of_tuples_may_have_a_metaclass_and_a_dict() -> None:
    class Other(tuple[object, ...], metaclass=ABCMeta):
        pass

    batch = build_batch([b"v"], base_timestamp_ms=NOW_MS)
    [message] = read_messages(batch, read_header(batch), "t", 0, 0, Other)
    message.note = "kept"  # type: ignore[attr-defined]
    assert (type(message), message[6], vars(message)) == (Other, b"v", {"note": "kept"})


def test_messages_hold_their_fields_once_and_let_them_go() -> None:
    batch = build_batch([b"v" * 50] * 300, base_timestamp_ms=NOW_MS, headers=[[("h", b"x")]] * 300)
    topic = "a topic of its own"
    before = sys.getrefcount(topic)
    messages = read_messages(batch, read_header(batch), topic, 0, 0, Message)
    assert sys.getrefcount(topic) == before + 300
    gc.collect()
    assert messages[299].value == b"v" * 50
    del messages
    assert sys.getrefcount(topic) == before


def test_what_make_raises_is_raised() -> None:
    batch = build_batch([b"v"], base_timestamp_ms=NOW_MS)
    with pytest.raises(ZeroDivisionError):
        read_messages(batch, read_header(batch), "t", 0, 0, lambda fields: 1 // 0)


def test_a_batch_is_read_whole_or_not_at_all() -> None:
    batch = build_batch([b"a", b"b"], base_timestamp_ms=NOW_MS)
    header = read_header(batch)
    with pytest.raises(CorruptBatch):
        read_messages(batch[:-1], header, "t", 0, 0, Message)
    batch[-1] = 2
    # also when the broken record is not one that was asked for
    for first_offset in (0, 100):
        with pytest.raises(InvalidRecord):
            read_messages(batch, header, "t", 0, first_offset, Message)
    bomb = build_batch([bytes(10_000)], base_timestamp_ms=NOW_MS, codec=Codec.ZSTD)
    with pytest.raises(BatchTooLarge):
        read_messages(bomb, read_header(bomb), "t", 0, 0, Message, max_decompressed_bytes=5000)

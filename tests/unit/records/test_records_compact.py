from __future__ import annotations

import pytest

from semel.records.batch import check_crc, read_header, set_max_timestamp, walk
from semel.records.build import build_batch
from semel.records.compact import filter_batch, record_keys
from semel.records.compression import Codec
from semel.records.errors import CorruptBatch, InvalidRecord
from semel.records.read import read_records

NOW_MS = 1_700_000_000_000
TIMESTAMPS = [NOW_MS + delta for delta in (0, 90, -40, 70_000_000_000, 5)]


def sample(codec: int = 0, *, transactional: bool = True) -> bytearray:
    return build_batch(
        [b"a" * 200, None, b"c", b"", b"e"],
        keys=[b"k1", b"k2", None, b"", b"k1"],
        headers=[(), [("h", b"x")], (), [("h", None), ("i", b"")], ()],
        timestamps_ms=TIMESTAMPS,
        base_timestamp_ms=NOW_MS,
        base_offset=1000,
        leader_epoch=4,
        codec=codec,
        producer_id=8,
        producer_epoch=1,
        base_sequence=2**31 - 2,
        transactional=transactional,
    )


def kept(batch: bytearray, keep: bytes, **options: int) -> bytearray:
    result = filter_batch(batch, keep, **options)  # type: ignore[arg-type]
    assert result is not None
    header = read_header(result)
    assert check_crc(result, 0, header)
    walk(result, header, compacted=True)
    return result


@pytest.mark.parametrize("codec", list(Codec))
def test_keys_are_listed_with_what_compaction_asks(codec: Codec) -> None:
    assert record_keys(sample(codec)) == [
        (1000, b"k1", True, TIMESTAMPS[0]),
        (1001, b"k2", False, TIMESTAMPS[1]),
        (1002, None, True, TIMESTAMPS[2]),
        (1003, b"", True, TIMESTAMPS[3]),
        (1004, b"k1", True, TIMESTAMPS[4]),
    ]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "keep", [b"\x01\x00\x00\x00\x00", b"\x00\x01\x01\x00\x01", b"\x00\x00\x00\x01\x00", b"\x01" * 5]
)
@pytest.mark.parametrize("horizon_ms", [None, NOW_MS + 86_400_000, 0])
def test_kept_records_stay_as_they_were(codec: Codec, keep: bytes, horizon_ms: int | None) -> None:
    batch = sample(codec)
    before = read_header(batch)
    result = kept(batch, keep, delete_horizon_ms=horizon_ms)  # type: ignore[arg-type]
    after = read_header(result)
    wanted = [record for record, mark in zip(read_records(batch), keep, strict=True) if mark]
    assert read_records(result) == wanted
    assert after.has_delete_horizon == (horizon_ms is not None)
    assert after == before._replace(
        batch_length=len(result) - 12,
        crc=after.crc,
        record_count=sum(keep),
        attributes=before.attributes | (0 if horizon_ms is None else 0x40),
        base_timestamp=NOW_MS if horizon_ms is None else horizon_ms,
        max_timestamp=max(record.timestamp_ms for record in wanted),
    )


def test_the_last_sequence_outlives_the_records() -> None:
    batch = sample()
    assert read_header(batch).last_sequence == 2
    assert read_header(kept(batch, b"\x01\x00\x00\x00\x00")).last_sequence == 2


def test_raw_records_are_copied_byte_for_byte() -> None:
    batch = sample()
    assert kept(batch, b"\x01" * 5) == batch


def test_a_list_of_bools_will_do_for_marks() -> None:
    result = filter_batch(sample(), [False, True, False, False, False])
    assert result is not None
    assert [record.offset for record in read_records(result)] == [1001]


def test_a_thinned_batch_can_be_thinned_again() -> None:
    once = kept(sample(), b"\x00\x01\x01\x00\x01")
    twice = kept(once, b"\x00\x01\x01")
    assert [record.offset for record in read_records(twice)] == [1002, 1004]
    assert read_header(twice).last_offset == 1004


def test_the_first_delete_horizon_counts() -> None:
    once = kept(sample(), b"\x01" * 5, delete_horizon_ms=5000)
    twice = kept(once, b"\x01" * 5, delete_horizon_ms=6000)
    assert read_header(twice).base_timestamp == 5000
    assert twice == once


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_of_which_nothing_is_kept_is_gone_or_empty(codec: Codec) -> None:
    batch = sample(codec)
    before = read_header(batch)
    assert filter_batch(batch, bytes(5)) is None
    empty = kept(batch, bytes(5), keep_empty=True, delete_horizon_ms=7)
    after = read_header(empty)
    assert len(empty) == 61
    assert after == before._replace(batch_length=49, crc=after.crc, record_count=0, attributes=0x10, base_timestamp=-1)
    assert kept(empty, b"", keep_empty=True) == empty
    assert record_keys(empty) == []


def test_log_append_time_survives() -> None:
    batch = sample()
    set_max_timestamp(batch, NOW_MS + 12, log_append_time=True)
    result = kept(batch, b"\x01\x00\x00\x00\x00", delete_horizon_ms=99)
    header = read_header(result)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW_MS + 12
    assert [record.timestamp_ms for record in read_records(result)] == [NOW_MS + 12]


def test_absurd_timestamps_survive_a_new_base() -> None:
    extremes = [-(2**63), 2**63 - 1, -1, 0]
    batch = build_batch([b"v"] * 4, timestamps_ms=extremes, base_timestamp_ms=NOW_MS)
    result = kept(batch, b"\x01" * 4, delete_horizon_ms=2**62)
    assert [record.timestamp_ms for record in read_records(result)] == extremes


def test_marks_must_match_the_records() -> None:
    for marks in (b"", b"\x01" * 4, b"\x01" * 6):
        with pytest.raises(ValueError, match="marks"):
            filter_batch(sample(), marks)


def test_a_broken_batch_is_not_copied() -> None:
    batch = sample()
    with pytest.raises(CorruptBatch):
        filter_batch(batch[:-1], b"\x01" * 5)
    batch[61] ^= 0x02
    with pytest.raises(InvalidRecord):
        filter_batch(batch, b"\x01" * 5)

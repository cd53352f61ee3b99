"""What a batch from a client must be: every check, and the code it is refused with."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from log_samples import NOW_MS, batch, code_of, settings

from semel.log.errors import RecordsRefused, Refused
from semel.log.validate import validated
from semel.records.batch import check_crc, read_header, set_crc
from semel.records.compression import Codec, compress
from semel.records.read import read_records
from semel.wire.errors import ErrorCode

PLAIN = settings()


def refusal(data: Any, config: Any = PLAIN) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        validated(data, config, NOW_MS)
    return code_of(refused)


def changed(data: bytearray, position: int, value: int, length: int) -> bytearray:
    """With another value in the header, and the CRC of it."""
    data = bytearray(data)
    data[position : position + length] = value.to_bytes(length, "big", signed=True)
    set_crc(data)
    return data


def test_a_good_batch_passes_as_it_is() -> None:
    data = batch(b"a", b"b", producer=5, sequence=0)
    good = validated(bytes(data), PLAIN, NOW_MS)
    assert bytes(good.batch) == bytes(data)
    assert good.header == read_header(data)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda d: memoryview(bytes(d))])
def test_what_is_validated_can_be_written_to(kind: Any) -> None:
    good = validated(kind(batch(b"a")), PLAIN, NOW_MS)
    good.batch[0:8] = (77).to_bytes(8, "big")


def test_a_flipped_bit_in_the_records_is_a_corrupt_message() -> None:
    data = batch(b"a" * 50)
    data[80] ^= 1
    assert refusal(data) is ErrorCode.CORRUPT_MESSAGE


def test_half_a_batch_is_a_corrupt_message() -> None:
    data = batch(b"a" * 50)
    assert refusal(data[:-1]) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(data[:40]) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(b"") is ErrorCode.CORRUPT_MESSAGE


def test_a_length_below_the_header_is_a_corrupt_message() -> None:
    assert refusal(changed(batch(b"a"), 8, 48, 4)) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(changed(batch(b"a"), 8, -5, 4)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_magic_is_an_invalid_record(magic: int) -> None:
    assert refusal(changed(batch(b"a"), 16, magic, 1)) is ErrorCode.INVALID_RECORD


def test_a_batch_above_the_limit_is_too_large() -> None:
    data = batch(b"a" * 500)
    assert refusal(data, settings(max_message_bytes=len(data) - 1)) is ErrorCode.MESSAGE_TOO_LARGE
    validated(bytearray(data), settings(max_message_bytes=len(data)), NOW_MS)


def test_a_batch_that_no_segment_could_hold_is_too_large() -> None:
    data = batch(b"a" * 500)
    assert refusal(data, settings(segment_bytes=len(data) - 1)) is ErrorCode.RECORD_LIST_TOO_LARGE
    validated(bytearray(data), settings(segment_bytes=len(data)), NOW_MS)


def test_two_batches_in_one_request_are_an_invalid_record() -> None:
    assert refusal(batch(b"a") + batch(b"b")) is ErrorCode.INVALID_RECORD


def test_a_base_offset_of_the_clients_own_is_an_invalid_record() -> None:
    assert refusal(changed(batch(b"a"), 0, 5, 8)) is ErrorCode.INVALID_RECORD


def test_a_control_batch_from_a_client_is_an_invalid_record() -> None:
    assert refusal(batch(b"a", keys=[b"1234"], producer=1, sequence=0, control=True)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("count", "last_delta"), [(1, 1), (3, 1), (2, 0), (0, 1)])
def test_counts_that_do_not_fit_the_offsets_are_an_invalid_record(count: int, last_delta: int) -> None:
    data = changed(changed(batch(b"a", b"b"), 57, count, 4), 23, last_delta, 4)
    assert refusal(data) is ErrorCode.INVALID_RECORD


def test_more_or_fewer_records_than_counted_are_an_invalid_record() -> None:
    for count in (1, 3):
        data = changed(changed(batch(b"a", b"b"), 57, count, 4), 23, count - 1, 4)
        assert refusal(data) is ErrorCode.INVALID_RECORD


def test_offset_deltas_out_of_order_are_an_invalid_record() -> None:
    data = batch(b"a", b"b")
    # A record is length, attributes, timestamp delta, offset delta, ...: the second one's delta is zigzag 2.
    assert data[61 + 3] == 0
    data[61 + 3] = 2
    set_crc(data)
    assert refusal(data) is ErrorCode.INVALID_RECORD


def test_a_producer_id_without_sequence_or_epoch_is_an_invalid_record() -> None:
    assert refusal(batch(b"a", producer=5, sequence=-1)) is ErrorCode.INVALID_RECORD
    assert refusal(batch(b"a", producer=5, epoch=-1, sequence=0)) is ErrorCode.INVALID_RECORD


def test_a_transaction_without_a_producer_id_is_an_invalid_record() -> None:
    assert refusal(batch(b"a", transactional=True)) is ErrorCode.INVALID_RECORD


def test_a_compacted_topic_wants_keys() -> None:
    config = settings(cleanup_policy="compact")
    assert refusal(batch(b"a", b"b", keys=[b"k", None]), config) is ErrorCode.INVALID_RECORD
    validated(batch(b"a", b"b", keys=[b"k", b""]), config, NOW_MS)


def test_timestamps_outside_of_the_limits_are_invalid() -> None:
    config = settings(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    for allowed in (NOW_MS - 1000, NOW_MS + 500, -1):
        validated(batch(b"a", timestamp_ms=allowed), config, NOW_MS)
    for wrong in (NOW_MS - 1001, NOW_MS + 501):
        assert refusal(batch(b"a", timestamp_ms=wrong), config) is ErrorCode.INVALID_TIMESTAMP
    late = batch(b"a", b"b", timestamps_ms=[NOW_MS, NOW_MS + 501])
    assert refusal(late, config) is ErrorCode.INVALID_TIMESTAMP


def records_refused(data: Any, config: Any) -> RecordsRefused:
    with pytest.raises(RecordsRefused) as refused:
        validated(data, config, NOW_MS)
    return refused.value


@pytest.mark.parametrize("codec", list(Codec))
def test_the_records_to_blame_are_named(codec: Codec) -> None:
    """KIP-467."""
    values = [b"v"] * 100
    keys = [None if index % 10 == 9 else b"k" for index in range(100)]
    refusal = records_refused(batch(*values, keys=keys, codec=codec), settings(cleanup_policy="compact"))
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in refusal.records] == list(range(9, 100, 10))
    assert all("no key" in one.text for one in refusal.records)
    assert "of 100 records 10 have no key" in refusal.text


def test_one_wrong_timestamp_gives_the_batch_its_code() -> None:
    config = settings(cleanup_policy="compact", message_timestamp_after_max_ms=500)
    late = batch(b"a", b"b", b"c", keys=[None, b"k", b"k"], timestamps_ms=[NOW_MS, NOW_MS, NOW_MS + 501])
    refusal = records_refused(late, config)
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert [one.batch_index for one in refusal.records] == [0, 2]
    assert "no key" in refusal.records[0].text
    assert str(NOW_MS + 501) in refusal.records[1].text
    assert f"to {NOW_MS + 500} are allowed" in refusal.records[1].text


def test_a_record_without_a_timestamp_does_not_hide_one_of_the_past() -> None:
    config = settings(message_timestamp_before_max_ms=1000)
    validated(batch(b"a", b"b", timestamps_ms=[-1, NOW_MS]), config, NOW_MS)
    refusal = records_refused(batch(b"a", b"b", timestamps_ms=[-1, NOW_MS - 1001]), config)
    assert [one.batch_index for one in refusal.records] == [1]


def test_where_the_broker_stamps_no_timestamp_is_wrong() -> None:
    config = settings(
        cleanup_policy="compact", message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=1
    )
    data = batch(b"a", b"b", keys=[None, b"k"], timestamps_ms=[NOW_MS, NOW_MS + 99])
    assert [one.batch_index for one in records_refused(data, config).records] == [0]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_gap_between_offsets_is_named_by_the_record_after_it(codec: Codec) -> None:
    data = batch(b"a", b"b", b"c")
    size = (len(data) - 61) // 3
    data[61 + 2 * size + 3] = 2 * 5  # the third record's offset delta
    if codec:
        payload = compress(codec, bytes(data[61:]))
        data = bytearray(data[:61] + payload)
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[21:23] = int(codec).to_bytes(2, "big")
    set_crc(data)
    refusal = records_refused(data, PLAIN)
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert [(one.batch_index, "offset delta 5 follows 1" in one.text) for one in refusal.records] == [(2, True)]


def test_a_refusal_names_a_thousand_records_at_most_and_counts_them_all() -> None:
    data = batch(*[b"v"] * 5000, codec=Codec.ZSTD)
    refusal = records_refused(data, settings(cleanup_policy="compact"))
    assert len(refusal.records) == 1000
    assert "of 5000 records 5000 have no key" in refusal.text


def test_a_refusal_of_records_comes_back_whole_from_another_process() -> None:
    refusal = records_refused(batch(b"a"), settings(cleanup_policy="compact"))
    again = pickle.loads(pickle.dumps(refusal))
    assert (again.code, again.text, again.records) == (refusal.code, refusal.text, refusal.records)


def test_a_client_may_not_call_its_timestamps_append_times() -> None:
    assert refusal(batch(b"a", log_append_time=True)) is ErrorCode.INVALID_TIMESTAMP


def test_a_wrong_largest_timestamp_in_the_header_is_put_right() -> None:
    data = changed(batch(b"a", b"b", timestamps_ms=[NOW_MS, NOW_MS + 7]), 35, NOW_MS + 50_000_000, 8)
    good = validated(data, PLAIN, NOW_MS)
    assert good.header.max_timestamp == NOW_MS + 7
    assert check_crc(good.batch, 0, good.header)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_with_log_append_time_every_record_gets_the_time_of_the_append(codec: Codec) -> None:
    config = settings(message_timestamp_type="LogAppendTime")
    good = validated(batch(b"a", b"b", timestamp_ms=5, codec=codec), config, NOW_MS)
    assert good.header.is_log_append_time
    assert check_crc(good.batch, 0, good.header)
    assert read_header(good.batch) == good.header
    assert [record.timestamp_ms for record in read_records(good.batch)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_compressed_batch_is_opened_and_its_records_are_checked(codec: Codec) -> None:
    good = batch(b"a" * 40, b"b" * 40, codec=codec)
    assert bytes(validated(bytearray(good), PLAIN, NOW_MS).batch) == bytes(good)
    wrong_count = changed(changed(good, 57, 3, 4), 23, 2, 4)
    assert refusal(wrong_count) is ErrorCode.INVALID_RECORD
    cut = bytearray(good[:-6])
    cut[8:12] = (len(cut) - 12).to_bytes(4, "big")
    set_crc(cut)
    assert refusal(cut) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(codec: int) -> None:
    assert refusal(changed(batch(b"a"), 21, codec, 2)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_batch_that_unfolds_without_end_is_too_large() -> None:
    assert refusal(batch(bytes(80 << 20), codec=Codec.ZSTD)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("sent", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_a_topic_with_its_own_compression_gets_batches_in_it(wanted: str, sent: Codec) -> None:
    data = batch(b"a" * 60, None, keys=[b"x", b"y"], headers=[[("h", b"1")], []], producer=3, sequence=9, codec=sent)
    good = validated(bytearray(data), settings(compression_type=wanted), NOW_MS)
    assert good.header.codec == (Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()])
    assert check_crc(good.batch, 0, good.header)
    assert read_records(good.batch) == read_records(data)
    assert good.header._replace(batch_length=0, crc=0, attributes=0) == read_header(data)._replace(
        batch_length=0, crc=0, attributes=0
    )


def test_a_batch_that_grew_by_recompression_past_the_limit_is_too_large() -> None:
    data = batch(b"a" * 5000, codec=Codec.ZSTD)
    config = settings(compression_type="uncompressed", max_message_bytes=1000)
    assert len(data) < 1000
    assert refusal(data, config) is ErrorCode.MESSAGE_TOO_LARGE

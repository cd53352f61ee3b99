"""What a batch from a client must be before it may stand in a log: everything that Kafka checks, in Kafka's codes.

Nothing here knows the log's state: sequences and epochs are judged by `producers`. The function is pure, so a large
compressed batch can be validated away from the loop.
"""

from typing import NamedTuple

from semel.config import TopicConfig
from semel.host.api import Buffer
from semel.log.errors import Refused
from semel.log.record_refusals import broken_record, refused_records
from semel.records.batch import BatchHeader, Walk, check_crc, read_header, set_max_timestamp, walk
from semel.records.compression import Codec
from semel.records.errors import BatchTooLarge, CorruptBatch, InvalidRecord, RecordError, UnsupportedCodec
from semel.records.recompress import recompress
from semel.wire.errors import ErrorCode

_MAGIC_AT = 16
_EARLIEST_MS, _LATEST_MS = -(1 << 63), (1 << 63) - 1
# A batch may unfold to this many times the largest batch allowed, and to 64 MB in any case.
_UNFOLD_FACTOR = 64
_UNFOLD_MIN_BYTES = 64 << 20
_CODES = (
    (BatchTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (CorruptBatch, ErrorCode.CORRUPT_MESSAGE),
    (UnsupportedCodec, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (InvalidRecord, ErrorCode.INVALID_RECORD),
)


class Validated(NamedTuple):
    """A batch that may be appended: writable bytes and the header they carry now."""

    batch: bytearray | memoryview
    header: BatchHeader


def validated(records: Buffer, config: TopicConfig, now_ms: int) -> Validated:
    """Judges what a produce request carries for one partition; raises Refused with the code that Kafka gives."""
    try:
        return _validated(records, config, now_ms)
    except RecordError as error:
        for kind, code in _CODES:
            if isinstance(error, kind):
                raise Refused(code, str(error)) from error
        raise


def _validated(records: Buffer, config: TopicConfig, now_ms: int) -> Validated:
    if len(records) > _MAGIC_AT and records[_MAGIC_AT] != 2:
        raise Refused(ErrorCode.INVALID_RECORD, f"record batches have magic 2 here, not {records[_MAGIC_AT]}")
    header = read_header(records)
    size = header.batch_length + 12
    if size > len(records):
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the batch says {size} bytes, but {len(records)} came")
    _check_size(size, config)
    if size < len(records):
        raise Refused(ErrorCode.INVALID_RECORD, "a produce request carries exactly one batch per partition")
    _check_header(header, config)
    if not check_crc(records, 0, header):
        raise CorruptBatch("CRC-32C does not match")
    unfolded_bytes = max(_UNFOLD_MIN_BYTES, _UNFOLD_FACTOR * size)
    try:
        walked = walk(records, header, max_decompressed_bytes=unfolded_bytes)
    except InvalidRecord as error:
        refusal = broken_record(records, header, unfolded_bytes, error)
        if refusal is None:
            raise
        raise refusal from error
    _check_records(records, header, walked, config, now_ms, unfolded_bytes)
    batch = records if not isinstance(records, bytes) else bytearray(records)
    if isinstance(batch, memoryview) and batch.readonly:
        batch = bytearray(batch)
    batch, header = _with_topic_codec(batch, header, config)
    _check_size(len(batch), config)
    if config.message_timestamp_type == "LogAppendTime":
        set_max_timestamp(batch, now_ms, log_append_time=True)
        return Validated(batch, read_header(batch))
    if walked.max_timestamp != header.max_timestamp:
        set_max_timestamp(batch, walked.max_timestamp, log_append_time=False)
        header = read_header(batch)
    return Validated(batch, header)


def _check_size(size: int, config: TopicConfig) -> None:
    if size > config.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        raise Refused(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"the batch has {size} bytes, segment.bytes is {config.segment_bytes}"
        )


def _check_header(header: BatchHeader, config: TopicConfig) -> None:
    if header.base_offset != 0:
        raise InvalidRecord(f"a producer's batch has base offset 0, not {header.base_offset}")
    if header.is_control:
        raise InvalidRecord("clients may not write control records")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"the header counts {header.record_count} records, but its offsets span {header.last_offset_delta + 1}"
        )
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise InvalidRecord("a batch with a producer id needs an epoch and a sequence from 0 on")
    elif header.is_transactional:
        raise InvalidRecord("a transactional batch needs a producer id")
    if header.is_log_append_time and config.message_timestamp_type != "LogAppendTime":
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")


def _check_records(
    records: Buffer, header: BatchHeader, walked: Walk, config: TopicConfig, now_ms: int, unfolded_bytes: int
) -> None:
    needs_keys = config.compacts
    earliest_ms, latest_ms = _EARLIEST_MS, _LATEST_MS
    if not config.stamps_at_append:
        earliest_ms = max(earliest_ms, now_ms - config.message_timestamp_before_max_ms)
        latest_ms = min(latest_ms, now_ms + config.message_timestamp_after_max_ms)
    if (walked.null_keys and needs_keys) or walked.max_timestamp > latest_ms or walked.min_timestamp < earliest_ms:
        refusal = refused_records(
            records,
            header,
            unfolded_bytes,
            needs_keys=needs_keys,
            earliest_ms=earliest_ms,
            latest_ms=latest_ms,
        )
        if refusal is not None:
            raise refusal


def _with_topic_codec(
    batch: bytearray | memoryview, header: BatchHeader, config: TopicConfig
) -> tuple[bytearray | memoryview, BatchHeader]:
    """The batch in the topic's own compression, when it names one."""
    wanted = config.compression_type
    if wanted == "producer":
        return batch, header
    codec = Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]
    if codec == header.codec:
        return batch, header
    level = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)
    recompressed = recompress(batch, header, codec, level=level, max_decompressed_bytes=_UNFOLD_MIN_BYTES)
    return recompressed, read_header(recompressed)

"""The four codecs of record batches, in the framings that the Java client writes and with every framing in use read.

Decompression never trusts a length: it stops at `max_bytes`, and takes memory as it fills it, because 2 KB of zstd can
hold 64 MB. The libraries are imported at first use, which keeps a broker's start short.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum

from semel.records.errors import BatchTooLarge, CorruptBatch, UnsupportedCodec
from semel.records.kernel import unfilled

Buffer = bytes | bytearray | memoryview

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50  # and the fifteen numbers after it
_ZSTD_MAX_BLOCK_BYTES = 128 * 1024
# The only word by which cramjam tells a full output buffer from broken input.
_OUTPUT_FULL = "failed to write whole buffer"

_GZIP_WINDOW_BITS = 31


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`level` is the codec's own; None is the level Kafka's producer uses by default."""
    if codec == Codec.NONE:
        return bytes(data)
    return _functions(codec)[0](data, level)


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes | bytearray:
    """Raises BatchTooLarge rather than return more than `max_bytes`, CorruptBatch for what the codec cannot read."""
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return bytes(data)
    return _functions(codec)[1](data, max_bytes)


def _functions(
    codec: int,
) -> tuple[Callable[[Buffer, int | None], bytes], Callable[[Buffer, int], bytes | bytearray]]:
    found = _CODECS.get(codec)
    if found is None:
        raise UnsupportedCodec(f"compression codec {codec} does not exist")
    return found


def _too_large(max_bytes: int) -> BatchTooLarge:
    return BatchTooLarge(f"the records take more than {max_bytes} bytes once decompressed")


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    return zlib.compress(data, -1 if level is None else level, wbits=_GZIP_WINDOW_BITS)


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    """One gzip member, or several in a row."""
    parts: list[bytes] = []
    room = max_bytes
    rest: Buffer = data
    while rest or not parts:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            part = member.decompress(rest, room + 1)
        except zlib.error as error:
            raise CorruptBatch(f"gzip: {error}") from None
        if len(part) > room:
            raise _too_large(max_bytes)
        if not member.eof:
            raise CorruptBatch("gzip: the data ends too early")
        parts.append(part)
        room -= len(part)
        rest = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    """Xerial's framing, which Java and most clients expect: a header, then blocks that each bear their length."""
    from cramjam import snappy

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        out += _BLOCK_LENGTH.pack(len(block))
        out += memoryview(block)
    return bytes(out)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytearray:
    """Both framings: no raw block can begin like Xerial's magic, which would be a copy of bytes before the first."""
    import cramjam
    from cramjam import snappy

    view = memoryview(data)
    if not view:
        raise CorruptBatch("snappy: no data")
    blocks = _xerial_blocks(view) if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [view]
    try:
        sizes = [snappy.decompress_raw_len(block) for block in blocks]
        total = sum(sizes)
        if total > max_bytes:
            raise _too_large(max_bytes)
        out = unfilled(total)
        room = memoryview(out)
        for block, size in zip(blocks, sizes, strict=True):
            if snappy.decompress_raw_into(block, room[:size]) != size:
                raise CorruptBatch("snappy: a block is shorter than it says")
            room = room[size:]
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from None
    return out


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    blocks = []
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CorruptBatch("snappy: the framing's header is cut short")
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise CorruptBatch("snappy: a block length is cut short")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if length < 1 or length > len(view) - position:
            raise CorruptBatch(f"snappy: a block of {length} bytes with {len(view) - position} left")
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """Independent blocks: Java cannot read linked ones."""
    from lz4 import frame  # type: ignore[import-untyped]

    return frame.compress(  # type: ignore[no-any-return]
        data, compression_level=level or 0, block_size=frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )


def _decompress_lz4(data: Buffer, max_bytes: int) -> bytes:
    from lz4 import frame

    view = memoryview(data)
    parts: list[bytes] = []
    room = max_bytes
    step_bytes = 4 * len(view) + 1024
    context = frame.create_decompression_context()
    ended = False
    try:
        while not ended:
            part, read_bytes, ended = frame.decompress_chunk(context, view, max_length=min(room + 1, step_bytes))
            if not part and not ended and read_bytes == 0:
                raise CorruptBatch("lz4: the data ends too early")
            if len(part) > room:
                raise _too_large(max_bytes)
            parts.append(part)
            room -= len(part)
            view = view[read_bytes:]
            step_bytes *= 2
    except RuntimeError as error:
        raise CorruptBatch(f"lz4: {error}") from None
    if view:
        raise CorruptBatch(f"lz4: {len(view)} bytes after the end of the frame")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    from cramjam import zstd

    return bytes(zstd.compress(data, level))


def _decompress_zstd(data: Buffer, max_bytes: int) -> bytearray:
    import cramjam
    from cramjam import zstd

    # cramjam's stream has no limit of its own, but it stops at the end of a buffer it is given. What stays unfilled of
    # that buffer takes no memory, so a bound that is too high costs nothing.
    bound = _zstd_bound(memoryview(data), max_bytes)
    out = unfilled(min(bound, max_bytes))
    try:
        used_bytes = zstd.decompress_into(data, out)
    except cramjam.DecompressionError as error:
        if bound > max_bytes and _OUTPUT_FULL in str(error):
            raise _too_large(max_bytes) from None
        raise CorruptBatch(f"zstd: {error}") from None
    del out[used_bytes:]
    return out


def _zstd_bound(view: memoryview, enough: int) -> int:
    """The most that these zstd frames can hold, by their block headers (RFC 8878); stops counting past `enough`.

    The content size in a frame's header is not used: clients that stream leave it out.
    """
    position = 0
    bound = 0
    while position < len(view):
        magic = _little_endian(view, position, 4)
        position += 4
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE_MAGIC:
            position += 4 + _little_endian(view, position, 4)
            continue
        if magic != _ZSTD_MAGIC:
            raise CorruptBatch("zstd: not a frame")
        descriptor = _little_endian(view, position, 1)
        single_segment = descriptor & 0x20 != 0
        content_size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
        dictionary_id_bytes = (0, 1, 2, 4)[descriptor & 3]
        position += 1 + (0 if single_segment else 1) + dictionary_id_bytes + content_size_bytes
        last = False
        while not last:
            block = _little_endian(view, position, 3)
            last = block & 1 != 0
            kind = block >> 1 & 3
            size = block >> 3
            is_run = kind == 1  # one byte, repeated
            position += 3 + (1 if is_run else size)
            bound += _ZSTD_MAX_BLOCK_BYTES if kind == 2 else size
            if bound > enough:
                return bound
        position += 4 if descriptor & 0x04 else 0
    return bound


def _little_endian(view: memoryview, position: int, size: int) -> int:
    field = view[position : position + size]
    if len(field) < size:
        raise CorruptBatch("zstd: the data ends too early")
    return int.from_bytes(field, "little")


_CODECS: dict[int, tuple[Callable[[Buffer, int | None], bytes], Callable[[Buffer, int], bytes | bytearray]]] = {
    Codec.GZIP: (_compress_gzip, _decompress_gzip),
    Codec.SNAPPY: (_compress_snappy, _decompress_snappy),
    Codec.LZ4: (_compress_lz4, _decompress_lz4),
    Codec.ZSTD: (_compress_zstd, _decompress_zstd),
}

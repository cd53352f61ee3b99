from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
from random import Random

import cramjam
import lz4.frame
import pytest

from semel.records.compression import Codec, compress, decompress
from semel.records.errors import BatchTooLarge, CorruptBatch, UnsupportedCodec

CODECS = [codec for codec in Codec if codec]
TEXT = b"".join(b"line %d of a text that repeats itself\n" % i for i in range(10_000))


@pytest.mark.parametrize("data", [b"", b"x", os.urandom(70_000), TEXT], ids=["empty", "byte", "random", "text"])
@pytest.mark.parametrize("codec", list(Codec))
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert decompress(codec, memoryview(packed), len(data)) == data
    assert decompress(codec, packed, 10**9) == data
    if data:
        with pytest.raises(BatchTooLarge):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT[:5000])
    for length in range(len(packed)):
        if codec == Codec.SNAPPY and length == 16:
            continue  # Xerial's framing has no end mark: cut between blocks, it is whole
        with pytest.raises((CorruptBatch, BatchTooLarge)):
            decompress(codec, packed[:length], 10_000)


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 100, b"not compressed at all", TEXT])
@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_refused(codec: Codec, garbage: bytes) -> None:
    with pytest.raises((CorruptBatch, BatchTooLarge)):
        decompress(codec, garbage, 10**6)


@pytest.mark.parametrize("codec", [-1, 5, 7, 99])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCodec):
        decompress(codec, b"", 1)
    with pytest.raises(UnsupportedCodec):
        compress(codec, b"")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_packs_tighter(codec: Codec) -> None:
    words = Random(1).choices([b"offset ", b"epoch ", b"leader ", b"batch ", b"log ", b"producer "], k=20_000)
    assert len(compress(codec, b"".join(words), 9)) < len(compress(codec, b"".join(words), 1))


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_without_its_memory(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * 2**20))
    limit = 2**20
    decompress(codec, compress(codec, b"warm up"), 100)
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge):
            decompress(codec, bomb, limit)
        # snappy tells its size beforehand; what grows does so in steps, and a slice of the bomb is held beside it
        assert tracemalloc.get_traced_memory()[1] < 4 * limit + len(bomb)
    finally:
        tracemalloc.stop()


def test_a_high_limit_costs_a_small_batch_nothing() -> None:
    for codec in CODECS:
        packed = compress(codec, TEXT[:1000])
        decompress(codec, packed, 10**4)
        tracemalloc.start()
        try:
            decompress(codec, packed, 2**30)
            assert tracemalloc.get_traced_memory()[1] < 300_000, codec
        finally:
            tracemalloc.stop()


def test_gzip_members_in_a_row_are_read() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(Codec.GZIP, packed, 7) == b"one two"
    with pytest.raises(BatchTooLarge):
        decompress(Codec.GZIP, packed, 6)
    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, packed + b"tail", 100)


def test_snappy_is_written_in_the_framing_of_java() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (length,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == TEXT[: 32 * 1024]


def test_raw_snappy_is_read_too() -> None:
    packed = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, packed, len(TEXT)) == TEXT


@pytest.mark.parametrize("length", [-1, 0, 2**31 - 1])
def test_a_snappy_block_of_an_impossible_length_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"x")[:16] + struct.pack(">i", length) + b"abc", 100)


def test_a_snappy_block_that_claims_too_much_is_refused() -> None:
    claim = b"\xff\xff\xff\xff\x0f"  # 4 GiB
    with pytest.raises(BatchTooLarge):
        decompress(Codec.SNAPPY, claim + b"\x00x", 2**20)
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, b"\x80\x80\x40" + b"\x00x", 2**20)


def test_lz4_is_written_in_independent_blocks() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert not info["block_linked"]


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_lz4_frames_of_every_kind_are_read(linked: bool, checksum: bool) -> None:
    packed = lz4.frame.compress(TEXT, block_linked=linked, content_checksum=checksum, block_checksum=checksum)
    assert decompress(Codec.LZ4, packed, len(TEXT)) == TEXT
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, packed + b"\x00", len(TEXT))


def zstd_frame(*blocks: bytes, checksum: bool = False) -> bytes:
    """A frame without a content size, with a window of 1 KiB."""
    return struct.pack("<IBB", 0xFD2FB528, 0x04 if checksum else 0, 0) + b"".join(blocks)


def zstd_block(kind: int, size: int, content: bytes, last: bool) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + content


def test_zstd_frames_without_a_content_size_are_read() -> None:
    frame = zstd_frame(zstd_block(0, 3, b"abc", False), zstd_block(1, 500, b"z", True))
    assert decompress(Codec.ZSTD, frame, 503) == b"abc" + b"z" * 500
    with pytest.raises(BatchTooLarge):
        decompress(Codec.ZSTD, frame, 502)


def test_zstd_frames_in_a_row_are_read() -> None:
    skipped = struct.pack("<II", 0x184D2A53, 5) + b"aside"
    empty = zstd_frame(zstd_block(0, 0, b"", True))
    packed = compress(Codec.ZSTD, b"one ") + skipped + empty + compress(Codec.ZSTD, b"two")
    assert decompress(Codec.ZSTD, packed, 7) == b"one two"


def test_zstd_that_is_broken_past_the_limit_is_never_too_large_by_its_claim_alone() -> None:
    """A thousand blocks may hold 128 MB, but these hold three bytes, which fit."""
    frame = zstd_frame(*[zstd_block(0, 0, b"", False)] * 1000, zstd_block(0, 3, b"abc", True))
    assert decompress(Codec.ZSTD, frame, 3) == b"abc"

from __future__ import annotations

from types import ModuleType

import pytest

import column_kernels
from semel.records.partitioning import murmur2, partition_of_key


@pytest.fixture(autouse=True)
def any_column_kernel(any_kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return column_kernels.use(any_kernel.compiled, monkeypatch)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_they_do_in_java(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected
    assert partition_of_key(key, 12) == (expected & 0x7FFFFFFF) % 12


def test_an_empty_key_has_a_hash_too() -> None:
    assert murmur2(b"") == 275646681


def test_bytes_beyond_127_count_without_a_sign() -> None:
    # Of each length modulo 4, because the bytes after the last four are mixed in one by one.
    # The expected ones are those of another client, kafka-python.
    hashes = [murmur2(b"\xff" * length) for length in range(1, 5)]
    assert hashes == [-311467685, -1642832928, 1548199422, 644171429]
    assert [murmur2(b"\xff" * length) for length in range(5, 9)] == [-363838622, 28450676, -71293549, 185950397]


def test_a_zero_byte_does_not_end_a_key() -> None:
    assert murmur2(b"a\x00b") != murmur2(b"a\x00c")
    assert murmur2(b"\x00") != murmur2(b"")


def test_one_partition_takes_every_key() -> None:
    assert {partition_of_key(bytes([n]), 1) for n in range(256)} == {0}


@pytest.mark.parametrize("count", [0, -1])
def test_a_topic_has_at_least_one_partition(count: int) -> None:
    with pytest.raises(ValueError, match="partitions"):
        partition_of_key(b"key", count)


@pytest.mark.parametrize("wrong", ["text", 5, None, bytearray(b"k")])
def test_only_plain_bytes_are_hashed(wrong: object, any_column_kernel: ModuleType) -> None:
    if not any_column_kernel.compiled:
        pytest.skip("uncompiled, Python does not check types")
    with pytest.raises(TypeError):
        murmur2(wrong)  # type: ignore[arg-type]

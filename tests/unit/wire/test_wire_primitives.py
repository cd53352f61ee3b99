import pytest

from semel.wire.errors import WireError
from semel.wire.primitives import coordinator_partition, decode_uvarint, encode_uvarint, java_string_hash

MIN_VALUE_STRING = "polygenelubricants"
"""A string whose Java hash is Integer.MIN_VALUE."""


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**28 - 1, b"\xff\xff\xff\x7f"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_a_varint_takes_seven_bits_a_byte(value: int, encoded: bytes) -> None:
    assert encode_uvarint(value) == encoded
    assert decode_uvarint(b"?" + encoded + b"?", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 20])
def test_a_varint_of_more_than_32_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(WireError):
        decode_uvarint(encoded, 0)


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff\xff"])
def test_a_varint_that_does_not_end_is_refused(encoded: bytes) -> None:
    with pytest.raises(WireError):
        decode_uvarint(encoded, 0)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_number_that_no_varint_can_hold_is_refused(value: int) -> None:
    with pytest.raises(WireError):
        encode_uvarint(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96354),
        ("hello", 99162322),
        ("Hello World", -862545276),
        (MIN_VALUE_STRING, -(2**31)),
        ("\U0001d11e", 0xD834 * 31 + 0xDD1E),
    ],
)
def test_a_string_hashes_as_in_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_the_coordinator_of_the_lowest_hash_is_partition_zero() -> None:
    assert coordinator_partition(MIN_VALUE_STRING, 50) == 0
    assert coordinator_partition(MIN_VALUE_STRING, 7) == 0


def test_a_negative_hash_counts_without_its_sign() -> None:
    assert coordinator_partition("Hello World", 50) == 862545276 % 50


def test_a_positive_hash_is_taken_modulo_the_partition_count() -> None:
    assert coordinator_partition("abc", 50) == 4

"""Messages that are read and written in slices are the same as those that are read and written at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from wire_samples import API_MESSAGES, random_messages, versions

from semel.wire.codec import Buffer, decode, encode, sliced_decoder, sliced_encoder
from semel.wire.errors import WireError
from semel.wire.lazy import NotMade, lazily
from semel.wire.schema import Message
from semel.wire.spec.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from semel.wire.spec.produce import ProduceRequest

ANY_NUMBER = 1 << 31


def decoded_in_slices(cls: type[Message], version: int, data: Buffer, most: int = ANY_NUMBER) -> tuple[Any, list[int]]:
    """The message, and how many elements each slice had."""
    decoding = sliced_decoder(cls, version)(data, 0, most)
    counts = []
    while True:
        try:
            counts.append(next(decoding))
        except StopIteration as end:
            message, position = end.value
            assert position == len(data)
            return message, counts


def refusal_of(read: Callable[[], object]) -> str | None:
    try:
        read()
    except WireError as error:
        return str(error)
    return None


def encoded_in_slices(message: Message, version: int) -> tuple[bytes, int]:
    """The bytes, and how many slices they came in."""
    parts: list[Any] = []
    slices = 1 + sum(1 for _ in sliced_encoder(type(message), version)(message, parts.append))
    return b"".join(parts), slices


@pytest.mark.parametrize("cls", API_MESSAGES, ids=lambda cls: cls.__name__)
def test_a_message_is_the_same_in_slices(cls: type[Message]) -> None:
    for version in versions(cls):
        for message in random_messages(cls, version, 6, seed=3):
            encoded = encode(message, version)
            assert encoded_in_slices(message, version)[0] == encoded
            assert decoded_in_slices(cls, version, encoded)[0] == message


@pytest.mark.parametrize("cls", API_MESSAGES, ids=lambda cls: cls.__name__)
def test_what_ends_too_early_is_refused_in_slices_as_well(cls: type[Message]) -> None:
    version = cls.max_version
    for message in random_messages(cls, version, 3, seed=4):
        encoded = encode(message, version)
        for length in range(0, len(encoded), max(1, len(encoded) // 40)):
            told = [
                refusal_of(lambda data=encoded[:length]: decode(cls, version, data)),
                refusal_of(lambda data=encoded[:length]: decoded_in_slices(cls, version, data)),
            ]
            assert told[0] == told[1]
            assert told[0] is not None


def names(count: int) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=f"t{number}") for number in range(count)]


def test_many_elements_are_read_in_slices_that_say_how_many_they_had() -> None:
    data = encode(MetadataRequest(topics=names(1000)), 9)
    message, counts = decoded_in_slices(MetadataRequest, 9, data)
    assert len(message.topics) == 1000
    assert max(counts) == 64
    assert 1000 - 64 < sum(counts) <= 1000


def test_an_array_of_more_elements_than_may_be_is_refused_before_any_is_read() -> None:
    data = encode(MetadataRequest(topics=names(1000)), 9)
    decoding = sliced_decoder(MetadataRequest, 9)(data, 0, 999)
    with pytest.raises(WireError, match="1000 entries, more than 999"):
        next(decoding)


def test_tagged_fields_by_the_thousand_are_refused() -> None:
    """They cost two bytes each, and a look at each of them."""
    plain = encode(ProduceRequest(), 9)
    for count, is_refused in ((1000, False), (1001, True)):
        data = plain[:-1] + bytes([count & 0x7F | 0x80, count >> 7]) + b"\x7f\0" * count
        told = [
            refusal_of(lambda data=data: decode(ProduceRequest, 9, data)),
            refusal_of(lambda data=data: decoded_in_slices(ProduceRequest, 9, data)),
        ]
        assert told == ["1001 tagged fields are too many" if is_refused else None] * 2


def test_elements_that_are_made_when_they_are_written_are_made_one_in_each_slice() -> None:
    made: list[int] = []

    def make(number: int) -> MetadataResponseTopic:
        made.append(number)
        return MetadataResponseTopic(name=f"t{number}")

    numbers = range(10)
    plain = MetadataResponse(topics=[MetadataResponseTopic(name=f"t{number}") for number in numbers])
    lazy = MetadataResponse(topics=lazily(make, numbers))
    parts: list[Any] = []
    encoding = sliced_encoder(MetadataResponse, 9)(lazy, parts.append)
    assert made == []
    for _ in encoding:
        assert made == list(range(len(made)))
    assert b"".join(parts) == encode(plain, 9)
    assert made == list(numbers)
    assert encode(lazy, 9) == encode(plain, 9)
    assert encoded_in_slices(lazy, 9)[1] == 11
    assert lazy == plain


def test_an_element_that_cannot_be_made_is_an_error_of_its_maker_not_of_the_encoding() -> None:
    def make(number: int) -> MetadataResponseTopic:
        raise KeyError(number)

    for encode_it in (encode, encoded_in_slices):
        with pytest.raises(NotMade, match="KeyError: 7"):
            encode_it(MetadataResponse(topics=lazily(make, [7])), 9)

"""Bytes from strangers: they decode or raise WireError, whatever they are, and take no more memory than is due."""

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_samples import ALL_MESSAGES, API_MESSAGES, LONGER, random_messages, versions

from semel.wire.codec import decode, encode
from semel.wire.errors import WireError
from semel.wire.frame import read_request_header, read_response, request_bytes
from semel.wire.schema import Message, Request, Response
from semel.wire.spec.metadata_records import decode_metadata_record

MUTATIONS = 3000 * LONGER
"""Of every message, over all of its versions."""
SAMPLE_BYTES_MAX = 1200
"""Longer samples are left to the round trip: truncating one costs the square of its length."""

# What an attacker writes where a length is expected: the largest and the smallest number of each form.
LENGTHS = [
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\x7f\xff",
    b"\xff",
    b"\0",
]


def samples(cls: type[Message], version: int, count: int, seed: int) -> list[bytes]:
    """A few encoded messages; the largest that is not too long, since it has the most to break, comes first."""
    encoded = [encode(message, version) for message in random_messages(cls, version, count, seed)]
    return sorted((each for each in encoded if len(each) <= SAMPLE_BYTES_MAX), key=len, reverse=True)


def decodes_or_is_refused(cls: type[Message], version: int, buffer: bytes) -> bool:
    try:
        message = decode(cls, version, buffer)
    except WireError:
        return False
    encode(message, version)
    return True


def mutated(original: bytes, random: Random) -> bytes:
    changed = bytearray(original)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(5):
            case 0 if at < len(changed):
                changed[at] ^= 1 << random.randrange(8)
            case 1:
                changed[at : at + random.randint(0, 5)] = random.choice(LENGTHS)
            case 2:
                del changed[at : at + random.randint(1, 8)]
            case 3:
                changed[at:at] = random.randbytes(random.randint(1, 8))
            case _:
                changed[at:at] = changed[: random.randint(0, 20)]
    return bytes(changed)


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_every_truncation_is_refused(cls: type[Message]) -> None:
    for version in versions(cls):
        encoded = samples(cls, version, 5, seed=4)[0]
        for length in range(len(encoded)):
            with pytest.raises(WireError):
                decode(cls, version, encoded[:length])
        with pytest.raises(WireError):
            decode(cls, version, encoded + b"\0")


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_a_mutated_message_decodes_or_is_refused(cls: type[Message]) -> None:
    random = Random(cls.__name__)
    for version in versions(cls):
        originals = samples(cls, version, 4, seed=5)
        for _ in range(MUTATIONS // len(versions(cls)) + 1):
            decodes_or_is_refused(cls, version, mutated(random.choice(originals), random))


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_an_enormous_length_anywhere_allocates_next_to_nothing(cls: type[Message]) -> None:
    for version in {cls.min_version, cls.max_version}:
        encoded = samples(cls, version, 3, seed=6)[0][:150]
        decodes_or_is_refused(cls, version, encoded)  # the decoder is made now, not while memory is measured
        tracemalloc.start()
        try:
            for at in range(len(encoded)):
                for length in LENGTHS[:3]:
                    hostile = encoded[:at] + length + encoded[at + len(length) :] + bytes(200)
                    decodes_or_is_refused(cls, version, hostile)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 256 * 1024


@settings(max_examples=1500 * LONGER, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(ALL_MESSAGES), st.integers(0, 30), st.binary(max_size=300))
def test_arbitrary_bytes_decode_or_are_refused(cls: type[Message], version: int, buffer: bytes) -> None:
    decodes_or_is_refused(cls, version, buffer)


@settings(max_examples=1500 * LONGER, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=60), st.sampled_from([cls for cls in API_MESSAGES if issubclass(cls, Response)]))
def test_arbitrary_frames_are_read_or_refused(buffer: bytes, cls: type[Response]) -> None:
    for read in (
        lambda: read_request_header(buffer),
        lambda: read_response(cls, cls.max_version, buffer),
        lambda: decode_metadata_record(buffer),
    ):
        try:
            read()
        except WireError:
            continue


@pytest.mark.parametrize("cls", [cls for cls in API_MESSAGES if issubclass(cls, Request)], ids=lambda cls: cls.__name__)
def test_a_truncated_or_mutated_request_header_is_read_or_refused(cls: type[Request]) -> None:
    random = Random(cls.__name__)
    for version in versions(cls):
        frame = request_bytes(cls(), version, 7, "client")[4:]
        body_position = read_request_header(frame).body_position
        for length in range(body_position):
            with pytest.raises(WireError):
                read_request_header(frame[:length])
        for _ in range(MUTATIONS // 50):
            try:
                read_request_header(mutated(frame[:body_position], random))
            except WireError:
                continue

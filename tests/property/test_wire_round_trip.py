"""What is encoded is decoded to the same message, for every API, version and direction, and every metadata record."""

import pytest
from wire_samples import ALL_MESSAGES, LONGER, METADATA_RECORDS, random_messages, versions

from semel.wire.codec import decode, decoder, encode
from semel.wire.schema import Message
from semel.wire.spec.metadata_records import decode_metadata_record, encode_metadata_record

SAMPLES = 12 * LONGER


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_a_decoded_message_equals_the_encoded_one(cls: type[Message]) -> None:
    for version in versions(cls):
        for message in random_messages(cls, version, SAMPLES):
            encoded = encode(message, version)
            decoded = decode(cls, version, encoded)
            assert decoded == message
            assert encode(decoded, version) == encoded


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_a_message_is_found_at_any_position_of_any_buffer(cls: type[Message]) -> None:
    for version in versions(cls):
        for message in random_messages(cls, version, 3, seed=2):
            encoded = encode(message, version)
            decode_at = decoder(cls, version)
            for buffer in (b"??" + encoded, bytearray(b"??" + encoded), memoryview(b"??" + encoded)):
                assert decode_at(buffer, 2) == (message, len(buffer))


@pytest.mark.parametrize("cls", METADATA_RECORDS, ids=lambda cls: cls.__name__)
def test_a_metadata_record_comes_back_out_of_its_frame(cls: type[Message]) -> None:
    for version in versions(cls):
        for record in random_messages(cls, version, SAMPLES):
            assert decode_metadata_record(encode_metadata_record(record, version)) == record

"""The smallest parts of the protocol: variable-length integers, and Java's string hash that picks a coordinator."""

from semel.wire.errors import WireError

Buffer = bytes | bytearray | memoryview

UVARINT_MAX = (1 << 32) - 1


def encode_uvarint(value: int) -> bytes:
    """An unsigned number of at most 32 bits, seven bits to a byte, lowest first."""
    if not 0 <= value <= UVARINT_MAX:
        raise WireError(f"{value} does not fit an unsigned varint")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The number at `position`, and the position after it."""
    try:
        first = buffer[position]
        if first < 0x80:
            return first, position + 1
        return finish_uvarint(buffer, position + 1, first)
    except IndexError:
        raise WireError("the bytes end inside a varint") from None


def finish_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose `first` byte, already read, says that more follow. IndexError at the end."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                break
            return value, position
    raise WireError("a varint is longer than 32 bits")


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: a signed 32-bit number made of the string's UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def coordinator_partition(key: str, partition_count: int) -> int:
    """The partition of an internal topic that holds the state of a group or a transactional id.

    Java's abs() leaves the lowest integer negative; Kafka takes 0 for it.
    """
    value = java_string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count

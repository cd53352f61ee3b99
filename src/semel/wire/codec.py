"""Messages to bytes and back. The function for a class and a version is made on first use and kept."""

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from semel.wire.decoding import make_decoder, make_sliced_decoder
from semel.wire.encoding import Part, make_encoder, make_sliced_encoder
from semel.wire.errors import WireError
from semel.wire.primitives import Buffer
from semel.wire.schema import Message, check_version

__all__ = ["Buffer", "Message", "Part", "decode", "decoder", "encode", "encoder", "sliced_decoder", "sliced_encoder"]

M = TypeVar("M", bound=Message)

Decoding: TypeAlias = Generator[int, None, tuple[M, int]]
"""Yields how many elements it has read since it last stopped, or is about to read at once."""
Encoding: TypeAlias = Generator[None, None, None]

_decoders: dict[tuple[type[Message], int], Callable[[Buffer, int], tuple[Any, int]]] = {}
_encoders: dict[tuple[type[Message], int], Callable[[Any, Callable[[Part], None]], None]] = {}
_sliced_decoders: dict[tuple[type[Message], int], Callable[[Buffer, int, int], Decoding[Any]]] = {}
_sliced_encoders: dict[tuple[type[Message], int], Callable[[Any, Callable[[Part], None]], Encoding]] = {}


def decoder(cls: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """A function that reads a message at a position of a buffer: the message, and the position after it."""
    try:
        return _decoders[cls, version]
    except KeyError:
        check_version(cls, version)
        made = _decoders[cls, version] = make_decoder(cls, version)
        return made


def encoder(cls: type[M], version: int) -> Callable[[M, Callable[[Part], None]], None]:
    """A function that gives the parts of an encoded message, in order, to whatever takes them."""
    try:
        return _encoders[cls, version]
    except KeyError:
        check_version(cls, version)
        made = _encoders[cls, version] = make_encoder(cls, version)
        return made


def sliced_decoder(cls: type[M], version: int) -> Callable[[Buffer, int, int], Decoding[M]]:
    """The same, in slices, with the most elements that an array may have. The buffer must not change until the end."""
    try:
        return _sliced_decoders[cls, version]
    except KeyError:
        check_version(cls, version)
        made = _sliced_decoders[cls, version] = make_sliced_decoder(cls, version)
        return made


def sliced_encoder(cls: type[M], version: int) -> Callable[[M, Callable[[Part], None]], Encoding]:
    try:
        return _sliced_encoders[cls, version]
    except KeyError:
        check_version(cls, version)
        made = _sliced_encoders[cls, version] = make_sliced_encoder(cls, version)
        return made


def decode(cls: type[M], version: int, buffer: Buffer) -> M:
    """The message that fills `buffer` to its last byte."""
    message, position = decoder(cls, version)(buffer, 0)
    if position != len(buffer):
        raise WireError(f"{cls.__name__} version {version} is followed by {len(buffer) - position} bytes too many")
    return message


def encode(message: Message, version: int) -> bytes:
    """The bytes of a message whose records, if it has any, are in memory."""
    parts: list[Any] = []
    encoder(type(message), version)(message, parts.append)
    try:
        return b"".join(parts)
    except TypeError:
        raise WireError(f"{type(message).__name__} carries records that are not in memory") from None

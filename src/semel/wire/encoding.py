"""Makes the function that encodes one message class in one version.

The function checks nothing that the struct module checks for it. When a value does not fit, whatever exception comes of
it is turned into a WireError that names the field (`refusal`). Fields that a version lacks are not written. Records are
handed on by reference, everything else as bytes.

An encoder in slices is a generator of the same code: it stops after some elements, so that its caller can let others
have their turn, and after each that is made when it is encoded (`lazy.py`).
"""

from collections.abc import Callable, Generator, Sized
from functools import cache
from struct import Struct as Packer
from struct import error as struct_error
from typing import Any

from semel.wire.errors import WireError
from semel.wire.lazy import Lazy
from semel.wire.primitives import encode_uvarint
from semel.wire.refusal import explain
from semel.wire.schema import (
    BOOL,
    BYTES,
    RECORDS,
    STRING,
    STRING_LENGTH_MAX,
    UUID,
    FieldLayout,
    Kind,
    Message,
    Struct,
    layout,
)
from semel.wire.source import Source

Part = bytes | memoryview | Sized
"""A piece of an encoded message; `len()` of it is its number of bytes."""

FIXED_ARRAY_CACHE = 126
"""Packers are kept for arrays up to this length, whose compact length takes one byte."""
ELEMENTS_PER_SLICE = 64


def string_length(compact_length: int) -> bytes:
    """The length of a string that does not fit one byte. Kafka's strings end at 32767 bytes in every version."""
    if compact_length > STRING_LENGTH_MAX + 1:
        raise ValueError("too long for a string")
    return encode_uvarint(compact_length)


class ArrayPackers(dict[int, Callable[..., bytes]]):
    """Packers of arrays of one fixed-size kind, length first, by length."""

    def __init__(self, code: str, flexible: bool) -> None:
        super().__init__()
        self.code = code
        self.flexible = flexible

    def __missing__(self, length: int) -> Callable[..., bytes]:
        if not self.flexible:
            pack = Packer(f">i{length}{self.code}").pack
        elif length <= FIXED_ARRAY_CACHE:
            pack = Packer(f">B{length}{self.code}").pack
        else:
            pack_elements = Packer(f">{length}{self.code}").pack
            return lambda compact_length, *elements: encode_uvarint(compact_length) + pack_elements(*elements)
        if length <= FIXED_ARRAY_CACHE:
            self[length] = pack
        return pack


@cache
def array_packers(code: str, flexible: bool) -> ArrayPackers:
    return ArrayPackers(code, flexible)


def as_array(value: object) -> list[Any] | tuple[Any, ...]:
    """Strings, sets and dicts could be walked as well, and would be written as something nobody meant."""
    if not isinstance(value, list | tuple | Lazy):
        raise TypeError("neither list nor tuple")
    return value  # type: ignore[return-value]


def weight_of(value: object) -> int:
    """What an element of an array counts: one that is made when it is encoded may be a long piece of work."""
    return ELEMENTS_PER_SLICE if isinstance(value, Lazy) else 1


def as_bytes(value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("not bytes")
    return bytes(value)


def record_parts(value: Any) -> tuple[list[Part] | tuple[Part, ...], int]:
    """The parts of a records field, and the sum of their lengths in bytes."""
    if value.__class__ is bytes:
        return (value,), len(value)
    if isinstance(value, list | tuple):
        parts = [part for each in value for part in record_parts(each)[0]]
        return parts, sum(map(len, parts))
    if isinstance(value, memoryview) and (value.itemsize != 1 or value.ndim != 1):
        value = value.cast("B")
    if isinstance(value, str):
        raise TypeError("not bytes")
    return (value,), len(value)


class EncoderSource(Source):
    """The body of an encoder. In it, w takes the next part of the encoded message."""

    def __init__(self, cls: type[Message], version: int, in_slices: bool = False) -> None:
        super().__init__(
            explain=explain,
            weight_of=weight_of,
            uvarint=encode_uvarint,
            string_length=string_length,
            as_array=as_array,
            as_bytes=as_bytes,
            record_parts=record_parts,
            NUMBER_OF={True: 1, False: 0},
            WireError=WireError,
            struct_error=struct_error,
        )
        self.version = version
        self.flexible = version >= cls.flexible_from
        self.in_slices = in_slices

    def write_pending(self, *more: tuple[str, str]) -> None:
        """Writes the waiting fixed-size fields, then `more`."""
        if self.pending or more:
            expressions, packer = self.take_pending(*more)
            pack = self.bind("pack", packer.pack)
            self.line(f"w({pack}({', '.join(filter(None, expressions))}))")

    def write_length(self, is_short: bool = False) -> None:
        """Writes n: the length, -1 for null; in flexible versions it already counts one more."""
        if not self.flexible:
            self.write_pending(("n", "h" if is_short else "i"))
            return
        waiting = list(self.pending)
        with self.block("if n < 128:"):
            self.write_pending(("n", "B"))
        with self.block("else:"):
            self.pending.extend(waiting)
            self.write_pending()
            self.line("w(string_length(n))" if is_short else "w(uvarint(n))")

    def measure(self, value: str, nullable: bool, empty: str, preparations: list[str], length: str) -> None:
        """n: what `write_length` writes for `value`, once the preparations have turned it into what follows n."""
        measured = f"n = {length} + 1" if self.flexible else f"n = {length}"
        if not nullable:
            for preparation in [*preparations, measured]:
                self.line(preparation)
            return
        with self.block(f"if {value} is None:"):
            self.line(f"{value} = {empty}")
            self.line("n = 0" if self.flexible else "n = -1")
        with self.block("else:"):
            for preparation in [*preparations, measured]:
                self.line(preparation)

    def struct(self, cls: type[Struct], source: str) -> None:
        shape = layout(cls, self.version, self.flexible)
        for entry in shape.plain:
            if entry.is_fixed and entry.kind is not None and entry.kind not in (UUID, BOOL):
                self.pending.append((f"{source}.{entry.name}", entry.kind.code))
                continue
            value = self.variable("v")
            self.line(f"{value} = {source}.{entry.name}")
            self.field(entry, value)
        if not self.flexible:
            return
        if shape.tagged:
            self.tags(shape.tagged, source)
        elif self.pending:
            self.pending.append(("", "x"))
        else:
            self.line("w(b'\\0')")

    def field(self, entry: FieldLayout, value: str) -> None:
        if entry.is_array:
            self.array(entry, value)
        elif entry.struct is not None:
            self.nested(entry, entry.struct, value)
        elif entry.kind is not None:
            self.scalar(entry.kind, value, entry.is_nullable)

    def nested(self, entry: FieldLayout, cls: type[Struct], value: str) -> None:
        if not entry.is_nullable or entry.tag is not None:
            self.struct(cls, value)
            return
        self.write_pending()
        self.line(f"if {value} is None: w(b'\\xff')")
        with self.block("else:"):
            self.pending.append(("1", "b"))
            self.struct(cls, value)
            self.write_pending()

    def scalar(self, kind: Kind, value: str, nullable: bool) -> None:
        if kind is STRING:
            self.measure(value, nullable, "b''", [f"{value} = {value}.encode()"], f"len({value})")
            self.write_length(is_short=True)
            self.line(f"w({value})")
        elif kind is BYTES:
            convert = f"if {value}.__class__ is not bytes: {value} = as_bytes({value})"
            self.measure(value, nullable, "b''", [convert], f"len({value})")
            self.write_length()
            self.line(f"w({value})")
        elif kind is RECORDS:
            self.measure(value, nullable, "()", [f"{value}, n = record_parts({value})"], "n")
            self.write_length()
            self.line(f"for part in {value}: w(part)")
        elif kind is UUID:
            # The struct module would cut or fill a value of another length without a word.
            self.line(f"if len({value}) != 16: raise ValueError('not 16 bytes')")
            self.pending.append((value, kind.code))
        elif kind is BOOL:
            self.pending.append((f"NUMBER_OF[{value}]", "B"))
        else:
            self.pending.append((value, kind.code))

    def array(self, entry: FieldLayout, value: str) -> None:
        check = f"if {value}.__class__ is not list: {value} = as_array({value})"
        self.measure(value, entry.is_nullable, "()", [check], f"len({value})")
        kind = entry.kind
        if kind is not None and kind.code and kind not in (UUID, BOOL):
            self.write_pending()
            packers = self.bind("packers", array_packers(kind.code, self.flexible))
            if self.flexible:
                pack = f"w({packers}[n - 1](n, *{value}))"
                self.line(f"if n: {pack}" if entry.is_nullable else pack)
                if entry.is_nullable:
                    self.line("else: w(b'\\0')")
            else:
                self.line(f"w({packers}[len({value})](n, *{value}))")
            return
        self.write_length()
        element, weight = self.variable("e"), self.variable("weight")
        if self.in_slices:
            self.write_pending()
            self.line(f"{weight} = weight_of({value})")
        with self.block(f"for {element} in {value}:"):
            if entry.struct is not None:
                self.struct(entry.struct, element)
            elif entry.kind is not None:
                self.scalar(entry.kind, element, nullable=False)
            self.write_pending()
            if self.in_slices:
                self.line(f"k += {weight}")
                self.line(f"if k >= {ELEMENTS_PER_SLICE}: yield; k = 0")

    def tags(self, tagged: list[FieldLayout], source: str) -> None:
        """Tagged fields that hold their default are not written at all."""
        self.write_pending()
        section, outer = self.variable("section"), self.variable("w")
        changed: list[tuple[FieldLayout, str, str]] = []
        for entry in tagged:
            value = self.variable("v")
            self.line(f"{value} = {source}.{entry.name}")
            changed.append((entry, value, self.differs(entry, value)))
        self.line(f"if not ({' or '.join(test for _, _, test in changed)}): w(b'\\0')")
        with self.block("else:"):
            self.line(f"{section} = []; {outer} = w")
            for entry, value, test in changed:
                content = self.variable("content")
                with self.block(f"if {test}:"):
                    self.line(f"{content} = []; w = {content}.append")
                    self.field(entry, value)
                    self.write_pending()
                    self.line(f"{content} = b''.join({content})")
                    self.line(f"{section}.append(uvarint({entry.tag}) + uvarint(len({content})) + {content})")
            self.line(f"w = {outer}; w(uvarint(len({section})) + b''.join({section}))")

    def differs(self, entry: FieldLayout, value: str) -> str:
        """A condition: the field does not hold its default."""
        default = entry.described.default
        if entry.is_array and default is not None:
            return f"({value} is None or len({value}))" if entry.is_nullable else f"len({value})"
        if entry.struct is not None and default is None:
            return f"({value} is not None and {value} != {self.bind('default', entry.struct())})"
        if default is None:
            return f"{value} is not None"
        return f"{value} != {self.literal(default)}"


def make_encoder(cls: type[Message], version: int) -> Callable[[Any, Callable[[Any], None]], None]:
    return _made(cls, version, in_slices=False)


def make_sliced_encoder(
    cls: type[Message], version: int
) -> Callable[[Any, Callable[[Any], None]], Generator[None, None, None]]:
    return _made(cls, version, in_slices=True)


def _made(cls: type[Message], version: int, in_slices: bool) -> Callable[..., Any]:
    source = EncoderSource(cls, version, in_slices)
    if in_slices:
        source.line("k = 0")
    with source.block("try:"):
        source.line("message.__class__")
        source.struct(cls, "message")
        source.write_pending()
        if in_slices:
            source.line("if 0: yield  # a generator, also without arrays")
    source.line("except WireError: raise")
    failures = "(struct_error, TypeError, ValueError, AttributeError, KeyError, OverflowError)"
    cls_name = source.bind("cls", cls)
    source.line(f"except {failures} as failure: raise explain(message, {cls_name}, {version}, failure) from None")
    return source.function("def encode(message, w):", f"encode {cls.__name__} version {version}")

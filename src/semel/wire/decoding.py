"""Makes the function that decodes one message class in one version.

The bytes come from strangers. Every length is compared with the bytes that remain before anything is made of it: a
string or a block must end inside the frame, an array needs at least its element's smallest size for each element.
Running past the end shows itself as struct.error or IndexError, which the function turns into WireError at its edge.
Fixed-size fields that follow each other, and the length or tag count after them, are read with one struct call.
Tags may come in any order; of a tag that comes twice the last one counts; unknown ones are skipped, up to a thousand in
a row: a frame may hold millions of them.

A decoder in slices is a generator of the same code. It stops after some elements, and before many, and yields how many
that are, so that its caller can let others have their turn, count, or give up. No array may have more than `most`.
"""

from collections.abc import Callable, Generator
from functools import cache
from struct import Struct as Packer
from struct import error as struct_error
from typing import Any

from semel.wire.errors import WireError
from semel.wire.primitives import Buffer, decode_uvarint, finish_uvarint
from semel.wire.schema import (
    BYTES,
    STRING,
    STRING_LENGTH_MAX,
    UUID,
    Field,
    FieldLayout,
    Kind,
    Message,
    Struct,
    has_records,
    layout,
    min_element_size,
)
from semel.wire.source import Source

FIXED_ARRAY_CACHE = 256
"""Unpackers are kept for arrays up to this length; longer ones are rare and pay for their own."""
ELEMENTS_PER_SLICE = 64
_MOST_TAGS = 1000


class ArrayUnpackers(dict[int, Callable[[Buffer, int], tuple[Any, ...]]]):
    """Unpackers of arrays of one fixed-size kind, by length."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def __missing__(self, length: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
        unpack = Packer(f">{length}{self.code}").unpack_from
        if length < FIXED_ARRAY_CACHE:
            self[length] = unpack
        return unpack


@cache
def array_unpackers(code: str) -> ArrayUnpackers:
    return ArrayUnpackers(code)


def skip_tags(buffer: Buffer, position: int, end: int, count: int) -> int:
    """The position after a section of `count` tagged fields (its first byte if more follow) that nobody here knows."""
    if count > 0x7F:
        count, position = finish_uvarint(buffer, position, count)
        if count > _MOST_TAGS:
            raise WireError(f"{count} tagged fields are too many")
    for _ in range(count):
        _, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        position += size
        if position > end:
            raise WireError("a tagged field runs past the end")
    return position


class DecoderSource(Source):
    """The body of a decoder. In it, b is the buffer, m a memoryview of it, p the position, end the buffer's length."""

    def __init__(self, version: int, flexible: bool, in_slices: bool = False) -> None:
        super().__init__(
            new=object.__new__,
            finish=finish_uvarint,
            skip_tags=skip_tags,
            WireError=WireError,
            struct_error=struct_error,
        )
        self.version = version
        self.flexible = flexible
        self.in_slices = in_slices

    def stop_after(self, elements: str) -> None:
        """k: the elements since the last stop."""
        if self.in_slices:
            self.line(f"k += {elements}")
            self.line(f"if k >= {ELEMENTS_PER_SLICE}: yield k; k = 0")

    def read_pending(self, *more: tuple[str, str]) -> None:
        """Reads the waiting fixed-size fields, then `more`, into their targets."""
        targets, packer = self.take_pending(*more)
        if not targets:
            return
        if packer.format == ">B":
            self.line(f"{targets[0]} = b[p]; p += 1")
            return
        unpack = self.bind("unpack", packer.unpack_from)
        comma = "," if len(targets) == 1 else ""
        self.line(f"{', '.join(targets)}{comma} = {unpack}(b, p); p += {packer.size}")

    def read_uvarint(self, target: str) -> None:
        self.read_pending((target, "B"))
        self.line(f"if {target} > 127: {target}, p = finish(b, p, {target})")

    def read_length(self, is_short: bool) -> None:
        """n: the length that follows, -1 for null."""
        if self.flexible:
            self.read_uvarint("n")
            self.line("n -= 1")
        else:
            self.read_pending(("n", "h" if is_short else "i"))

    def struct(self, cls: type[Struct], target: str, path: str) -> None:
        shape = layout(cls, self.version, self.flexible)
        self.line(f"{target} = new({self.bind('cls', cls)})")
        for described in [*shape.absent, *(entry.described for entry in shape.tagged)]:
            self.line(f"{target}.{described.name} = {self.default(described)}")
        for entry in shape.plain:
            self.field(entry, f"{target}.{entry.name}", f"{path}.{entry.name}")
        if self.flexible:
            self.tags(shape.tagged, target, path)

    def default(self, described: Field) -> str:
        if described.default_factory is not None:
            return self.bind("make", described.default_factory) + "()"
        return self.literal(described.default)

    def field(self, entry: FieldLayout, target: str, path: str) -> None:
        if entry.is_array:
            self.array(entry, target, path)
        elif entry.struct is not None:
            self.nested(entry, entry.struct, target, path)
        elif entry.kind is not None:
            self.scalar(entry.kind, target, path, entry.is_nullable)

    def nested(self, entry: FieldLayout, cls: type[Struct], target: str, path: str) -> None:
        made = self.variable("o")
        if not entry.is_nullable or entry.tag is not None:
            self.struct(cls, made, path)
            self.line(f"{target} = {made}")
            return
        self.read_pending(("n", "b"))
        with self.block("if n == 1:"):
            self.struct(cls, made, path)
            self.read_pending()
            self.line(f"{target} = {made}")
        self.line(f"elif n == -1: {target} = None")
        self.line(f"else: raise WireError('{path} is neither there nor null')")

    def scalar(self, kind: Kind, target: str, path: str, nullable: bool) -> None:
        if kind.code:
            self.pending.append((target, kind.code))
            return
        self.read_length(is_short=kind is STRING)
        with self.block("if n >= 0:"):
            self.line("q = p + n")
            self.line(f"if q > end: raise WireError('{path} runs past the end')")
            if kind is STRING:
                if self.flexible:
                    self.line(f"if n > {STRING_LENGTH_MAX}: raise WireError('{path} is too long for a string')")
                self.line(f"{target} = str(b[p:q], 'utf-8')")
            elif kind is BYTES:
                self.line(f"{target} = bytes(b[p:q])")
            else:
                self.line(f"{target} = m[p:q]")
            self.line("p = q")
        self.otherwise_null(target, path, nullable)

    def otherwise_null(self, target: str, path: str, nullable: bool) -> None:
        if nullable:
            self.line(f"elif n == -1: {target} = None")
        self.line(f"else: raise WireError(f'{path} has length {{n}}')")

    def array(self, entry: FieldLayout, target: str, path: str) -> None:
        self.read_length(is_short=False)
        element_size = min_element_size(entry, self.version, self.flexible)
        if element_size < 1:
            raise TypeError(f"{path} is an array of nothing in version {self.version}")
        with self.block("if n > 0:"):
            self.line(f"if n * {element_size} > end - p: raise WireError(f'{path} cannot hold {{n}} elements')")
            if self.in_slices:
                self.line(f"if n > most: raise WireError(f'{path} has {{n}} entries, more than {{most}}')")
            if entry.kind is not None and entry.kind.code and entry.kind is not UUID:
                unpackers = self.bind("unpackers", array_unpackers(entry.kind.code))
                self.stop_after("n")
                self.line(f"{target} = {unpackers}[n](b, p); p += n * {element_size}")
            else:
                self.elements(entry, target, path)
        self.line(f"elif n == 0: {target} = ()")
        self.otherwise_null(target, path, entry.is_nullable)

    def elements(self, entry: FieldLayout, target: str, path: str) -> None:
        made, element = self.variable("a"), self.variable("o")
        self.line(f"{target} = {made} = []")
        with self.block("for _ in range(n):"):
            if entry.struct is not None:
                self.struct(entry.struct, element, path)
            elif entry.kind is not None:
                self.scalar(entry.kind, element, path, nullable=False)
            self.read_pending()
            self.line(f"{made}.append({element})")
            self.stop_after("1")

    def tags(self, tagged: list[FieldLayout], target: str, path: str) -> None:
        if not tagged:
            self.read_pending(("n", "B"))
            with self.block("if n:"):
                self.line("p = skip_tags(b, p, end, n)")
                self.stop_after("n")
            return
        count, tag, tag_end = self.variable("count"), self.variable("tag"), self.variable("tag_end")
        self.read_uvarint(count)
        self.line(f"if {count} > {_MOST_TAGS}: raise WireError(f'{{{count}}} tagged fields of {path} are too many')")
        with self.block(f"for _ in range({count}):"):
            self.read_uvarint(tag)
            self.read_uvarint("n")
            self.line(f"{tag_end} = p + n")
            self.line(f"if {tag_end} > end: raise WireError('a tagged field of {path} runs past the end')")
            for number, entry in enumerate(tagged):
                with self.block(f"{'elif' if number else 'if'} {tag} == {entry.tag}:"):
                    self.field(entry, f"{target}.{entry.name}", f"{path}.{entry.name}")
                    self.read_pending()
            self.line(f"else: p = {tag_end}")
            self.line(f"if p != {tag_end}: raise WireError(f'tag {{{tag}}} of {path} has the wrong size')")
            self.stop_after("1")


def make_decoder(cls: type[Message], version: int) -> Callable[[Buffer, int], tuple[Any, int]]:
    return _made(cls, version, in_slices=False)


def make_sliced_decoder(
    cls: type[Message], version: int
) -> Callable[[Buffer, int, int], Generator[int, None, tuple[Any, int]]]:
    return _made(cls, version, in_slices=True)


def _made(cls: type[Message], version: int, in_slices: bool) -> Callable[..., Any]:
    flexible = version >= cls.flexible_from
    source = DecoderSource(version, flexible, in_slices)
    title = f"{cls.__name__} version {version}"
    source.line("end = len(b)")
    if has_records(cls, version, flexible):
        source.line("m = memoryview(b)")
    if in_slices:
        source.line("k = 0")
    with source.block("try:"):
        source.struct(cls, "message", cls.__name__)
        source.read_pending()
        if in_slices:
            source.line("if 0: yield 0  # a generator, also without arrays")
    source.line(f"except (struct_error, IndexError): raise WireError('{title} ends too early') from None")
    source.line(f"except UnicodeDecodeError: raise WireError('{title} has a string that is not UTF-8') from None")
    source.line("return message, p")
    return source.function("def decode(b, p, most):" if in_slices else "def decode(b, p=0):", f"decode {title}")

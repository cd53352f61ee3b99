"""How messages are described: typed classes whose fields, in order, are the fields on the wire.

A `Struct` is a group of fields; a `Message` is a struct that stands alone and has versions: requests and responses
(`apis` has their table), and the records that Kafka keeps in its internal topics. Every field states its default;
`field()` adds the versions in which it exists, the tag it carries, and the version from which it may be null.

    class PartitionProduceData(Struct):
        index: I32 = 0
        records: Records | None = None

A tagged struct that is absent from the bytes is `None`. `layout()` answers what a class looks like in one version. It
reads the annotations as objects, so modules with descriptions do not import `annotations` from `__future__`.
"""

from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from semel.wire.errors import WireError


class Kind(NamedTuple):
    """A type that is neither struct nor array. `code` is its letter in the struct module, if its size is fixed."""

    name: str
    code: str = ""
    size_bytes: int = 0
    lowest: int = 0
    highest: int = 0


def _integer(name: str, code: str, size_bytes: int, signed: bool = True) -> Kind:
    bits = size_bytes * 8
    if not signed:
        return Kind(name, code, size_bytes, 0, (1 << bits) - 1)
    return Kind(name, code, size_bytes, -(1 << bits - 1), (1 << bits - 1) - 1)


BOOL = Kind("bool", "?", 1)
UUID = Kind("uuid", "16s", 16)
STRING = Kind("string")
BYTES = Kind("bytes")
RECORDS = Kind("records")

Bool = Annotated[bool, BOOL]
I8 = Annotated[int, _integer("int8", "b", 1)]
I16 = Annotated[int, _integer("int16", "h", 2)]
U16 = Annotated[int, _integer("uint16", "H", 2, signed=False)]
I32 = Annotated[int, _integer("int32", "i", 4)]
I64 = Annotated[int, _integer("int64", "q", 8)]
F64 = Annotated[float, Kind("float64", "d", 8)]
Uuid = Annotated[bytes, UUID]
"""16 bytes, as they are on the wire."""
Str = Annotated[str, STRING]
Bytes = Annotated[bytes, BYTES]
Records = Annotated[Any, RECORDS]
"""Decoded: a memoryview of the input. To encode: bytes, a memoryview, any object with a length, or a list of those."""

Element = TypeVar("Element")
Array: TypeAlias = list[Element] | tuple[Element, ...]

NO_UUID = bytes(16)
STRING_LENGTH_MAX = 0x7FFF
NEVER = 1 << 15
"""A version that no message reaches."""


class Field:
    """One field of a struct, in all versions. Its type is read from the class's annotation when it is first needed."""

    __slots__ = ("default", "default_factory", "name", "nullable_since", "since", "tag", "until")

    def __init__(
        self,
        default: Any,
        default_factory: Callable[[], Any] | None = None,
        since: int = 0,
        until: int = NEVER,
        tag: int | None = None,
        nullable_since: int = 0,
    ) -> None:
        self.name = ""
        self.default = default
        self.default_factory = default_factory
        self.since = since
        self.until = until
        self.tag = tag
        self.nullable_since = nullable_since


def field(
    *,
    default: Any = None,
    default_factory: Callable[[], Any] | None = None,
    since: int = 0,
    until: int = NEVER,
    tag: int | None = None,
    nullable_since: int = 0,
) -> Any:
    """A field that exists in versions `since` to `until` only, is tagged, or may be null from one version on only."""
    return Field(default, default_factory, since, until, tag, nullable_since)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructType(type):
    """Makes slotted classes with a keyword constructor out of descriptions."""

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any) -> "StructType":
        fields: dict[str, Field] = {}
        for key, value in list(body.items()):
            if key.startswith("_") or isinstance(value, FunctionType | classmethod | staticmethod | property):
                continue
            described = body.pop(key)
            if not isinstance(described, Field):
                described = Field(described)
            described.name = key
            fields[key] = described
        body["__slots__"] = tuple(fields)
        body["_fields"] = fields
        body["__init__"] = _constructor(fields)
        return super().__new__(mcs, name, bases, body, **options)


def _constructor(fields: dict[str, Field]) -> Callable[..., None]:
    """A keyword-only `__init__`: written out, because it runs for every struct of every answer."""
    names: dict[str, Any] = {"ABSENT": Ellipsis}
    arguments, lines = ["self", "*"] if fields else ["self"], []
    for name, described in fields.items():
        if described.default_factory is None:
            names[f"default_{name}"] = described.default
            arguments.append(f"{name}=default_{name}")
            lines.append(f"    self.{name} = {name}")
        else:
            names[f"make_{name}"] = described.default_factory
            arguments.append(f"{name}=ABSENT")
            lines.append(f"    self.{name} = make_{name}() if {name} is ABSENT else {name}")
    source = f"def __init__({', '.join(arguments)}):\n" + ("\n".join(lines) or "    pass")
    exec(source, names)
    constructor: Callable[..., None] = names["__init__"]
    return constructor


class Struct(metaclass=StructType):
    """A group of fields that follow each other on the wire."""

    _fields: ClassVar[dict[str, Field]]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"


def _same(left: Any, right: Any) -> bool:
    """Equality that does not care whether an array is a list or a tuple."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


class Message(Struct):
    """A struct that stands alone: it has versions, and from `flexible_from` on compact lengths and tagged fields."""

    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int]

    def __init_subclass__(cls, versions: str = "", flexible: int | None = None) -> None:
        if versions:
            lowest, _, highest = versions.partition("-")
            cls.min_version = int(lowest)
            cls.max_version = int(highest or lowest)
            cls.flexible_from = NEVER if flexible is None else flexible


class ApiMessage(Message):
    """A message of an API, whose key it carries."""

    api_key: ClassVar[int]

    def __init_subclass__(cls, key: int | None = None, versions: str = "", flexible: int | None = None) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        if key is not None:
            cls.api_key = key


class Request(ApiMessage):
    """What a client sends."""


class Response(ApiMessage):
    """What a broker answers."""


class FieldLayout(NamedTuple):
    """One field as it is in one version."""

    name: str
    kind: Kind | None
    struct: type[Struct] | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    described: Field

    @property
    def is_fixed(self) -> bool:
        """Whether the field always takes the same number of bytes."""
        return not self.is_array and self.kind is not None and self.kind.code != ""


class Layout(NamedTuple):
    """One struct as it is in one version."""

    plain: list[FieldLayout]
    tagged: list[FieldLayout]
    absent: list[Field]
    min_size_bytes: int


def check_version(cls: type[Message], version: int) -> None:
    if not cls.min_version <= version <= cls.max_version:
        raise WireError(f"{cls.__name__} has no version {version}, only {cls.min_version} to {cls.max_version}")


def layout(cls: type[Struct], version: int, flexible: bool) -> Layout:
    """Which fields of `cls` are on the wire in `version`, in which order, and how few bytes they can take."""
    plain: list[FieldLayout] = []
    tagged: list[FieldLayout] = []
    absent: list[Field] = []
    for name, described in cls._fields.items():
        if not described.since <= version <= described.until:
            absent.append(described)
            continue
        kind, struct, is_array, has_null = _read_annotation(cls.__annotations__[name])
        is_nullable = has_null and version >= described.nullable_since
        entry = FieldLayout(name, kind, struct, is_array, is_nullable, described.tag, described)
        (plain if described.tag is None else tagged).append(entry)
    tagged.sort(key=lambda entry: entry.tag or 0)
    min_size_bytes = sum(min_size(entry, version, flexible) for entry in plain) + (1 if flexible else 0)
    return Layout(plain, tagged, absent, min_size_bytes)


def min_size(entry: FieldLayout, version: int, flexible: bool) -> int:
    """The fewest bytes that one field can take."""
    if entry.is_array:
        return 1 if flexible else 4
    return min_element_size(entry, version, flexible) if not (entry.struct and entry.is_nullable) else 1


def min_element_size(entry: FieldLayout, version: int, flexible: bool) -> int:
    """The fewest bytes that one element of an array (or the field itself, if it is none) can take."""
    if entry.struct is not None:
        return layout(entry.struct, version, flexible).min_size_bytes
    kind = entry.kind
    if kind is not None and kind.code:
        return kind.size_bytes
    if flexible:
        return 1
    return 2 if kind is STRING else 4


def has_field(cls: type[Struct], name: str) -> bool:
    """Whether there is such a field in any version."""
    return name in cls._fields


def struct_arrays(cls: type[Struct]) -> Iterator[tuple[str, type[Struct]]]:
    """The names of fields that are arrays of structs in any version, and what these are."""
    for name in cls._fields:
        _, struct, is_array, _ = _read_annotation(cls.__annotations__[name])
        if struct is not None and is_array:
            yield name, struct


@cache
def has_records(cls: type[Struct], version: int, flexible: bool) -> bool:
    """Whether a message of this version can carry record batches, which are passed on by reference."""
    shape = layout(cls, version, flexible)
    return any(
        entry.kind is RECORDS or (entry.struct is not None and has_records(entry.struct, version, flexible))
        for entry in [*shape.plain, *shape.tagged]
    )


def _read_annotation(annotation: Any) -> tuple[Kind | None, type[Struct] | None, bool, bool]:
    """(kind, struct, is an array, may be null) of a field's annotation."""
    members = list(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else [annotation]
    has_null = NoneType in members
    members = [member for member in members if member is not NoneType]
    is_array = get_origin(members[0]) is list
    inner = get_args(members[0])[0] if is_array else members[0]
    if isinstance(inner, type) and issubclass(inner, Struct):
        return None, inner, is_array, has_null
    kind = getattr(inner, "__metadata__", (None,))[0]
    if not isinstance(kind, Kind):
        raise TypeError(f"{annotation!r} is no type of the wire")
    return kind, None, is_array, has_null

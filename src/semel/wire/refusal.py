"""Says why a message could not be encoded: walks it by its description and names the first field that is wrong."""

from collections.abc import Sized
from typing import Any

from semel.wire.errors import WireError
from semel.wire.lazy import Lazy
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


def explain(message: object, cls: type[Message], version: int, failure: Exception) -> WireError:
    """The error to raise after encoding `message` as `cls` ended with `failure`."""
    if not isinstance(message, cls):
        return WireError(f"{type(message).__name__} is no {cls.__name__}")
    wrong = _wrong_in_struct(message, cls, cls.__name__, version, version >= cls.flexible_from)
    return WireError(wrong or f"{cls.__name__} version {version} cannot be encoded: {failure}")


def _wrong_in_struct(value: object, cls: type[Struct], path: str, version: int, flexible: bool) -> str | None:
    if not isinstance(value, cls):
        return f"{path}: {_shown(value)} is no {cls.__name__}"
    shape = layout(cls, version, flexible)
    for entry in [*shape.plain, *shape.tagged]:
        wrong = _wrong_in_field(getattr(value, entry.name), entry, f"{path}.{entry.name}", version, flexible)
        if wrong:
            return wrong
    return None


def _wrong_in_field(value: Any, entry: FieldLayout, path: str, version: int, flexible: bool) -> str | None:
    if value is None:
        is_absent_tag = entry.tag is not None and entry.described.default is None
        return None if entry.is_nullable or is_absent_tag else f"{path}: may not be null in version {version}"
    if not entry.is_array:
        return _wrong_in_element(value, entry, path, version, flexible)
    if not isinstance(value, list | tuple | Lazy):
        return f"{path}: {_shown(value)} is neither list nor tuple"
    found = (
        _wrong_in_element(element, entry, f"{path}[{index}]", version, flexible) for index, element in enumerate(value)
    )
    return next(filter(None, found), None)


def _wrong_in_element(value: Any, entry: FieldLayout, path: str, version: int, flexible: bool) -> str | None:
    if entry.struct is not None:
        return _wrong_in_struct(value, entry.struct, path, version, flexible)
    if entry.kind is None or _fits(value, entry.kind):
        return None
    return f"{path}: {_shown(value)} does not fit {entry.kind.name}"


def _fits(value: Any, kind: Kind) -> bool:
    if kind is STRING:
        return isinstance(value, str) and _utf8_length(value) <= STRING_LENGTH_MAX
    if kind is BYTES:
        return isinstance(value, bytes | bytearray | memoryview)
    if kind is RECORDS:
        parts = value if isinstance(value, list | tuple) else [value]
        return all(isinstance(part, Sized) and not isinstance(part, str) for part in parts)
    if kind is UUID:
        return isinstance(value, bytes | bytearray) and len(value) == 16
    if kind is BOOL:
        return isinstance(value, bool)
    if kind.code == "d":
        return isinstance(value, float | int)
    return isinstance(value, int) and kind.lowest <= value <= kind.highest


def _utf8_length(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return STRING_LENGTH_MAX + 1


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."

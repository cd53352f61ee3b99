"""What turns keys and values into bytes and back: a function of one argument, or an object that is told the topic too.

`semel.serializers` has ready ones. A program's own object has `serialize(value, context)` or
`deserialize(data, context)`. One that must fetch something first, a schema say, raises `NotReady`: the client then
calls its `fetch` outside of the event loop, and asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from semel.client.errors import BadSetting

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

Field: TypeAlias = Literal["key", "value"]


class SerializationContext(NamedTuple):
    """Of which topic it is the key or the value."""

    topic: str
    field: Field


class Serializer(Protocol[T_contra]):
    def serialize(self, value: T_contra, context: SerializationContext, /) -> bytes | None: ...


class Deserializer(Protocol[T_co]):
    def deserialize(self, data: bytes, context: SerializationContext, /) -> T_co: ...


class NotReady(Exception):
    """Something must be fetched first. `fetch` waits for it, so it is called in a thread; what it raises is raised to
    the program."""

    def __init__(self, fetch: Callable[[], object]) -> None:
        super().__init__("something must be fetched first")
        self.fetch = fetch


Convert: TypeAlias = Callable[[Any, SerializationContext], Any]


def converter(name: str, given: Any) -> Convert | None:
    """What a setting names, as a function of two arguments. Raises BadSetting."""
    if given is None:
        return None
    method = getattr(given, "deserialize" if name.endswith("deserializer") else "serialize", None)
    if callable(method) and not isinstance(given, type):
        return method  # type: ignore[no-any-return]
    if not callable(given):
        takes = "bytes" if name.endswith("deserializer") else "a value"
        raise BadSetting(f"{name}: {given!r} is not allowed; allowed: a function that takes {takes}, or a serializer")
    return lambda content, _: given(content)

"""JSON without a schema: of plain values by the standard library, of a program's classes by msgspec or pydantic."""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar, overload

from semel.client.serialization import SerializationContext
from semel.serializers.errors import needed
from semel.serializers.shapes import is_pydantic

T = TypeVar("T")


class Json(Generic[T]):
    """`Json()` for dicts, lists, texts and numbers; `Json(Order)` for a dataclass, a msgspec Struct, a pydantic model,
    or a type such as `list[Order]`. What does not fit the class is refused, when it is read too."""

    @overload
    def __init__(self: Json[Any], kind: None = None) -> None: ...
    @overload
    def __init__(self, kind: type[T]) -> None: ...
    def __init__(self, kind: Any = None) -> None:
        if kind is None:
            self._encode: Any = _encode
            self._decode: Any = json.loads
        elif is_pydantic(kind):
            self._encode = lambda value: value.model_dump_json().encode()
            self._decode = kind.model_validate_json
        else:
            msgspec = needed("msgspec.json", f"Json({getattr(kind, '__name__', kind)})", "json")
            self._encode = msgspec.Encoder().encode
            self._decode = msgspec.Decoder(kind).decode

    def serialize(self, value: T | None, context: SerializationContext | None = None, /) -> bytes | None:
        return None if value is None else self._encode(value)

    def deserialize(self, data: bytes, context: SerializationContext | None = None, /) -> T:
        return self._decode(data)  # type: ignore[no-any-return]


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

"""Objects of a program's own classes to plain dicts and back: dataclasses, msgspec Structs, pydantic models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from semel.serializers.errors import needed


def is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "model_validate") and hasattr(kind, "model_dump")


def plain(value: Any) -> Any:
    """What a serializer of dicts takes."""
    if is_pydantic(value):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "__struct_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return {name: plain(part) for name, part in value.items()} if isinstance(value, dict) else value


def maker(kind: Any) -> Callable[[Any], Any]:
    """What makes an object of the class of a dict; checks types on the way."""
    if kind is None or kind is dict:
        return lambda value: value
    if is_pydantic(kind):
        return kind.model_validate  # type: ignore[no-any-return]
    msgspec = needed("msgspec", f"to make a {kind.__name__}", "json")
    return lambda value: msgspec.convert(value, kind)

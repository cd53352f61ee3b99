"""What a request asks for, checked: each parameter with its bounds, each refusal with what is allowed."""

from __future__ import annotations

from collections.abc import Mapping

from semel.views.refusals import Misasked

MAX_TEXT = 1000


class Query:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str, default: str = "") -> str:
        value = self._given.get(name, default)
        if len(value) > MAX_TEXT:
            raise Misasked(f"{name} has {len(value)} characters; allowed: {MAX_TEXT}")
        return value

    def needed(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise Misasked(f"{name} is missing")
        return value

    def number(self, name: str, default: int, *, least: int = 0, most: int = (1 << 63) - 1) -> int:
        text = self._given.get(name, "")
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 19 or not least <= int(text) <= most:
            raise Misasked(f"{name}={text[:40]!r} is not allowed; allowed: a number from {least} to {most}")
        return int(text)

    def optional_number(self, name: str) -> int | None:
        return self.number(name, 0) if self._given.get(name) else None

    def flag(self, name: str) -> bool:
        return self._given.get(name, "") in ("1", "true")

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """The first one is the default."""
        value = self._given.get(name) or allowed[0]
        if value not in allowed:
            raise Misasked(f"{name}={value[:40]!r} is not allowed; allowed: {', '.join(allowed)}")
        return value

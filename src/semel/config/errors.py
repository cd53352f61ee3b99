"""Why a setting was refused: its name, the value given, what is allowed and, when known, where it came from."""

from __future__ import annotations

from collections.abc import Iterable

# How much of a name or a value is shown; both can be as long as a request.
_SHOWN_CHARACTERS = 100


class ConfigError(ValueError):
    """A refused setting. Handlers answer INVALID_CONFIG with its text, the command line prints it."""

    def __init__(self, name: str, value: str | None, allowed: str, *, origin: str | None = None) -> None:
        self.name = name
        self.value = value
        self.allowed = allowed
        self.origin = origin
        super().__init__(name, value, allowed, origin)

    def __str__(self) -> str:
        given = "no value" if self.value is None else f'"{_shown(self.value)}"'
        return f"{_shown(self.name)}: {given} is not allowed{self._where()}; allowed: {self.allowed}"

    def _where(self) -> str:
        return "" if self.origin is None else f" (from {self.origin})"

    def found_in(self, origin: str) -> ConfigError:
        """The same refusal, saying where the value came from."""
        self.origin = origin
        return self


class UnknownSetting(ConfigError):
    """A name that no setting carries; the text proposes the nearest one that exists."""

    def __init__(self, name: str, known: Iterable[str], *, kind_of_name: str = "setting") -> None:
        from difflib import get_close_matches  # 3 ms to import, needed for a refusal only

        # Names come from clients: the cutoff and the length keep a long one from stalling the node.
        nearest = get_close_matches(name[:_SHOWN_CHARACTERS], list(known), n=1, cutoff=0.7)
        self.nearest = nearest[0] if nearest else None
        self.kind_of_name = kind_of_name
        near = f"the nearest known {kind_of_name} is {self.nearest}" if nearest else "no known one is spelled like it"
        super().__init__(name, None, near)

    def __str__(self) -> str:
        return f"{_shown(self.name)}: unknown {self.kind_of_name}{self._where()}; {self.allowed}"


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."

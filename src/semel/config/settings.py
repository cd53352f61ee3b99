"""What a setting is, and how its text becomes a value and a value its text.

A setting is declared once (broker_settings.py, coordinator_settings.py, topic_settings.py); files, variables, flags,
the wire and the documentation all go through that declaration. Texts follow Kafka's rules: surrounding blanks are
ignored, booleans are true or false in any case, lists are separated by commas.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from math import isfinite
from typing import NamedTuple

from semel.config.errors import ConfigError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_LONG_DIGITS = 19

Value = bool | int | float | str | tuple[str, ...] | None


class Kind(IntEnum):
    """The type of a setting's value; the numbers are those of DescribeConfigs (version 3 and later)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


INTEGER_BOUNDS = {
    Kind.SHORT: (-(2**15), 2**15 - 1),
    Kind.INT: (-(2**31), INT_MAX),
    Kind.LONG: (-(2**63), LONG_MAX),
}


class Scope(Enum):
    """Whom a setting belongs to: a node, a topic, or a group."""

    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP_CONFIG = 8


class Synonym(NamedTuple):
    """A broker setting that gives a topic setting its default; `unit_ms` converts hours and minutes."""

    name: str
    unit_ms: int = 1


class Form(NamedTuple):
    """The shape of a text or of each entry of a list, where bounds and choices do not say it."""

    matches: Callable[[str], bool]
    described: str


class Setting(NamedTuple):
    """One declared setting. A `default` of None is Kafka's null: not set, something else decides."""

    name: str
    kind: Kind
    default: Value
    sentence: str
    minimum: float | None = None
    maximum: float | None = None
    also: int | None = None  # a single value outside the bounds, such as -1 for "no limit"
    choices: tuple[str, ...] = ()
    form: Form | None = None
    entries: tuple[int, int] | None = None  # least and most entries of a list
    needs_restart: bool = True
    sensitive: bool = False
    synonyms: tuple[Synonym, ...] = ()
    kafka_default: str | None = None  # Kafka's own, where ours differs
    off_because: str | None = None  # why a switch of Kafka's cannot be turned on here

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        if self.kind is Kind.BOOLEAN:
            return f"false: {self.off_because}" if self.off_because else "true or false"
        if self.kind in INTEGER_BOUNDS or self.kind is Kind.DOUBLE:
            return self._allowed_number()
        if self.kind is Kind.LIST:
            return self._allowed_list()
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return self.form.described if self.form else "any text"

    def _allowed_number(self) -> str:
        low, high = self.bounds
        noun = "a number" if self.kind is Kind.DOUBLE else "a whole number"
        if isfinite(high):
            span = f"{noun} from {low:g} to {high:g}" if self.kind is Kind.DOUBLE else f"{noun} from {low} to {high}"
        else:
            span = noun if not isfinite(low) else f"{noun} of at least {low:g}"
        return span if self.also is None else f"{span}, or {self.also}"

    def _allowed_list(self) -> str:
        if self.choices:
            entry = f"any of {', '.join(self.choices)}"
        else:
            entry = self.form.described if self.form else "any text"
        if self.entries == (1, 1):
            return f"exactly one entry: {entry}"
        count = "at least one entry" if self.entries and self.entries[0] else "any number of entries"
        return f"{count}, separated by commas, each once: {entry}"

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest number allowed."""
        low, high = INTEGER_BOUNDS.get(self.kind, (float("-inf"), float("inf")))
        return (low if self.minimum is None else self.minimum, high if self.maximum is None else self.maximum)

    def refuse(self, text: str | None) -> ConfigError:
        return ConfigError(self.name, "(hidden)" if self.sensitive and text is not None else text, self.allowed)

    def parse(self, text: str) -> Value:
        """The value that `text` stands for; raises ConfigError."""
        value = _PARSERS[self.kind](text.strip())
        if value is None or not self._permits(value):
            raise self.refuse(text)
        return value

    def _permits(self, value: Value) -> bool:
        if isinstance(value, bool):
            return not (value and self.off_because)
        if isinstance(value, int | float):
            low, high = self.bounds
            return low <= value <= high or value == self.also
        if isinstance(value, tuple):
            least, most = self.entries or (0, INT_MAX)
            if not least <= len(value) <= most or len(set(value)) < len(value):
                return False
            return all(entry and self._permits_text(entry) for entry in value)
        return isinstance(value, str) and self._permits_text(value)

    def _permits_text(self, text: str) -> bool:
        if self.choices:
            return text in self.choices
        return self.form is None or self.form.matches(text)

    def text(self, value: Value) -> str | None:
        """The text that `parse` turns back into `value`."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return repr(value)


def _boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _whole_number(text: str) -> int | None:
    # int() alone would also take "1_000", digits of other scripts, and numbers of any length.
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits.lstrip("0")) > _LONG_DIGITS:
        return None
    return int(text)


def _number(text: str) -> float | None:
    if "_" in text or not text.isascii():
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _list(text: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",")) if text else ()


_PARSERS: dict[Kind, Callable[[str], Value]] = {
    Kind.BOOLEAN: _boolean,
    Kind.STRING: str,
    Kind.INT: _whole_number,
    Kind.SHORT: _whole_number,
    Kind.LONG: _whole_number,
    Kind.DOUBLE: _number,
    Kind.LIST: _list,
    Kind.CLASS: str,
    Kind.PASSWORD: str,
}


def by_name(settings: list[Setting]) -> dict[str, Setting]:
    """The declarations as a table in order of name; a name declared twice is a mistake of ours."""
    table = {setting.name: setting for setting in sorted(settings, key=lambda setting: setting.name)}
    if len(table) != len(settings):
        raise RuntimeError("a setting is declared twice")
    return table

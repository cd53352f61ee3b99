"""The loggers of this process and their levels, by Kafka's names: what a config resource of type BROKER_LOGGER is.

Levels are not kept: a restart begins with those that the node is started with.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence

from semel.config import ConfigSource, DescribedSetting, Kind, Operation
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

logger = logging.getLogger("semel.broker")

ROOT = "root"
_OURS = "semel"
_TRACE = 5  # below all that Python names: nothing is logged there, so it shows what DEBUG shows
_LEVELS = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def described(names: Container[str] | None) -> list[DescribedSetting]:
    """Every logger (or those in `names`) and the level that counts for it."""
    return [
        DescribedSetting(
            name=name,
            value=_level_of(name),
            read_only=False,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            sensitive=False,
            synonyms=(),
            kind=Kind.STRING,
            documentation=f"The least level that the logger {name} writes.",
        )
        for name in _known()
        if names is None or name in names
    ]


def alter(operations: Sequence[tuple[int, str, str | None]], *, validate_only: bool) -> None:
    """Sets levels, or lets loggers follow the one above them again; all or none. Raises Refused."""
    known = set(_known())
    changes: dict[str, int] = {}
    for code, name, value in operations:
        if name in changes:
            raise Refused(ErrorCode.INVALID_REQUEST, "a logger is named more than once")
        if code not in (Operation.SET, Operation.DELETE):
            raise Refused(ErrorCode.INVALID_REQUEST, "the level of a logger can be set and deleted, nothing else")
        if name not in known:
            raise Refused(
                ErrorCode.INVALID_CONFIG, f"there is no logger {name[:100]!r}; there are {', '.join(sorted(known))}"
            )
        changes[name] = logging.NOTSET if code == Operation.DELETE else _level(name, value)
    if changes.get(ROOT) == logging.NOTSET:
        raise Refused(ErrorCode.INVALID_REQUEST, "the level of the root logger can be set, not deleted")
    for name, level in () if validate_only else changes.items():
        before = _level_of(name)
        _logger(name).setLevel(level)
        logger.info("the level of the logger %s is now %s, and was %s", name, _level_of(name), before)


def _level(name: str, value: str | None) -> int:
    if value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no level for {name}")
    level = _LEVELS.get(value)
    if level is None:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name}: the levels are {', '.join(_LEVELS)}, not {value[:100]!r}")
    return level


def _known() -> list[str]:
    """Those that exist now: a part of the node that is not loaded yet has none."""
    ours = [
        name
        for name, found in logging.root.manager.loggerDict.items()
        if isinstance(found, logging.Logger) and (name == _OURS or name.startswith(f"{_OURS}."))
    ]
    return [ROOT, *sorted({_OURS, *ours})]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _level_of(name: str) -> str:
    level = _logger(name).getEffectiveLevel()
    return max((known for known in _LEVELS.items() if known[1] <= level), default=("TRACE", 0), key=lambda one: one[1])[
        0
    ]

"""Reads a pipeline from a file: TOML, or Python with a function `pipeline` and, if need be, a dict `settings`.

Both have the same keys. Whatever is wrong is found before anything is started, and told all at once.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from semel.spark.pipeline.definition import Pipeline, local_path
from semel.spark.pipeline.errors import PipelineRefused
from semel.spark.pipeline.interpretation import FUNCTION, OF_TABLE, Interpretation

MODULE = "semel_pipeline_file"
SETTINGS = "settings"


@dataclass(frozen=True)
class Overrides:
    """What the command line says instead of the file."""

    address: str | None = None
    checkpoint: str | None = None
    trigger: str | None = None
    topics: tuple[str, ...] = ()
    sink_topic: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    """`master`, and settings of Spark."""


def load_pipeline(path: Path, overrides: Overrides | None = None, environ: Mapping[str, str] = os.environ) -> Pipeline:
    """Raises PipelineRefused, with everything that is wrong."""
    if path.suffix == ".py":
        function, table = _read_python(path)
    else:
        function, table = None, _read_toml(path)
    _override(table, overrides or Overrides())
    return Interpretation(path, environ).pipeline(table, function)


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise PipelineRefused(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineRefused(f"{path}: is not TOML: {error}") from None


def _read_python(path: Path) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Runs the file, with its directory on the path, as Python itself would."""
    if not path.is_file():
        raise PipelineRefused(f"{path}: cannot be read: there is no such file")
    spec = spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise PipelineRefused(f"{path}: cannot be read as Python")
    module = module_from_spec(spec)
    sys.modules[MODULE] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PipelineRefused(told_with_line(path, error)) from error
    function, settings = getattr(module, FUNCTION, None), getattr(module, SETTINGS, {})
    if not callable(function):
        raise PipelineRefused(f"{path}: has no function {FUNCTION}; expected is def {FUNCTION}(df): return df...")
    if not isinstance(settings, dict):
        raise PipelineRefused(f"{path}: {SETTINGS} is {type(settings).__name__}; expected is a dict")
    for name in ("sql", "sql_file"):
        if name in settings:
            raise PipelineRefused(f"{path}: {name}: the function {FUNCTION} says what is done: leave it out")
    return function, dict(settings)


def told_with_line(path: Path, error: BaseException) -> str:
    """An error of the file's own code, and where in the file it happened."""
    if isinstance(error, SyntaxError):
        line: int | None = error.lineno
    else:
        frames = [] if error.__traceback__ is None else inspect.getinnerframes(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)
    where = "" if line is None else f", line {line}"
    return f"{path}{where}: {type(error).__name__}: {error}"


def _override(table: dict[str, Any], overrides: Overrides) -> None:
    for name in ("address", "checkpoint", "trigger"):
        value = getattr(overrides, name)
        if value is not None:
            table[name] = str(Path(value).absolute()) if name == "checkpoint" and local_path(value) else value
    if overrides.spark and isinstance(table.get("spark", {}), dict):
        table["spark"] = {**table.get("spark", {}), **overrides.spark}
    if overrides.topics:
        source = table.get("source", {})
        if not isinstance(source, dict):
            raise PipelineRefused("--from: there are several sources: say in the file what each of them reads")
        table["source"] = {**{k: v for k, v in source.items() if k != "pattern"}, "topics": list(overrides.topics)}
    if overrides.sink_topic is not None and isinstance(table.get("sink", {}), dict):
        sink = {name: value for name, value in table.get("sink", {}).items() if name not in ("table", *OF_TABLE)}
        table["sink"] = {**sink, "topic": overrides.sink_topic}

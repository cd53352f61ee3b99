"""Named clusters in a file: ~/.config/semel/contexts.toml, or where SEMEL_CONFIG says.

    current = "local"

    [contexts.local]
    bootstrap_servers = "localhost:9092"

A value may hold ${NAME}, which is taken from the environment when the context is used: passwords need not be here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semel.cli.failures import NotFound, WrongCall

FILE_VARIABLE = "SEMEL_CONFIG"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def contexts_path(environ: Mapping[str, str]) -> Path:
    if environ.get(FILE_VARIABLE):
        return Path(environ[FILE_VARIABLE]).expanduser()
    home = Path(environ["XDG_CONFIG_HOME"]) if environ.get("XDG_CONFIG_HOME") else Path("~/.config").expanduser()
    return home / "semel" / "contexts.toml"


class Contexts:
    """What the file holds. `write` replaces it as a whole: readable by its owner alone, comments are not kept."""

    def __init__(
        self, path: Path, environ: Mapping[str, str], named: dict[str, dict[str, str]], current: str | None
    ) -> None:
        self.path = path
        self.named = named
        self.current = current
        self._environ = environ

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Contexts:
        """Without a file there are none."""
        path = contexts_path(environ)
        try:
            text = path.read_text()
        except FileNotFoundError:
            return cls(path, environ, {}, None)
        except UnicodeDecodeError:
            raise WrongCall(f"{path} is not TOML: it is no UTF-8 text") from None
        import tomllib

        try:
            return cls(path, environ, *_understood(tomllib.loads(text)))
        except (tomllib.TOMLDecodeError, ValueError) as error:
            raise WrongCall(f"{path} is not a file of contexts: {error}") from None

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(self.text())
            new.replace(self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def text(self) -> str:
        lines = [] if self.current is None else [f"current = {_toml(self.current)}"]
        for name in sorted(self.named):
            lines += ["", f"[contexts.{_key(name)}]"]
            lines += [f"{_key(setting)} = {_toml(value)}" for setting, value in self.named[name].items()]
        return "\n".join(lines).lstrip("\n") + "\n"

    def settings_of(self, name: str | None) -> dict[str, str]:
        """The settings of a context, or of the one in use; none if there is neither."""
        if name is None:
            name = self.current
            if name is None:
                return {}
        return {key: self._filled(name, key, value) for key, value in self.get(name).items()}

    def get(self, name: str) -> dict[str, str]:
        if name not in self.named:
            known = ", ".join(sorted(self.named)) or "none yet"
            raise NotFound(
                f"there is no context {name!r} in {self.path}; there are: {known} (semel context add makes one)"
            )
        return self.named[name]

    def _filled(self, name: str, key: str, text: str) -> str:
        for variable in _VARIABLE.findall(text):
            if variable not in self._environ:
                raise WrongCall(
                    f"context {name!r}: {key} needs the variable {variable}, which is not in the environment"
                )
        return _VARIABLE.sub(lambda found: self._environ[found[1]], text)


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise WrongCall(f"a context cannot be called {name!r}; allowed: letters, digits, '.', '_' and '-'")
    return name


def _understood(document: Mapping[str, Any]) -> tuple[dict[str, dict[str, str]], str | None]:
    unknown = sorted(document.keys() - {"current", "contexts"})
    if unknown:
        raise ValueError(f"{unknown[0]}: unknown key; known are current and contexts")
    tables = document.get("contexts", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ValueError("contexts: allowed are tables, [contexts.NAME]")
    current = document.get("current")
    if current is not None and current not in tables:
        raise ValueError(f"current: there is no [contexts.{current}]")
    return {name: dict(_flat(table)) for name, table in tables.items()}, current


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A bare key with dots is a table of tables to TOML: security.protocol = "SSL" may be written without quotes."""
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}_")
        elif isinstance(value, str | int | float):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found.append((f"{prefix}{key}".replace(".", "_"), text))
        else:
            raise ValueError(f"{prefix}{key}: allowed are texts, numbers and booleans")
    return found


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml(name)


def _toml(text: str) -> str:
    """JSON's way to write a text is TOML's too, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

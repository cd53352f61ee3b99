"""The parser of all commands: errors in one sentence, no guessing of shortened options, examples kept as written."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from semel.cli.failures import Exit


class _Help(argparse.RawDescriptionHelpFormatter):
    """Lists commands with their sentences beside them: argparse does not count how far it indents their names."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            indent = self._current_indent + self._indent_increment
            self._action_max_length = max([self._action_max_length, *(len(name) + indent for name in action.choices)])


class CommandParser(argparse.ArgumentParser):
    """Parsers below it (`add_subparsers`) are of this class too."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        settings.setdefault("formatter_class", _Help)
        settings.setdefault("allow_abbrev", False)
        super().__init__(*args, **settings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Says which of the words that are allowed was probably meant."""
        if action.choices is None or value in action.choices:
            return
        from difflib import get_close_matches

        allowed = [str(choice) for choice in action.choices]
        near = get_close_matches(str(value), allowed, n=1, cutoff=0.5)
        meant = f", did you mean {near[0]}?" if near else ""
        raise argparse.ArgumentError(action, f"{value!r} is not allowed{meant} (allowed: {', '.join(allowed)})")

    def error(self, message: str) -> NoReturn:
        self.exit(Exit.WRONG_CALL, f"{self.prog}: {message}; see {self.prog} --help\n")

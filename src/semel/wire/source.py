"""Writes the source of one function, line by line, and makes the function from it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as Packer
from typing import Any


class Source:
    """Lines of a function body, the objects they refer to by name, and fixed-size fields waiting to share one call."""

    def __init__(self, **names: Any) -> None:
        self.names = names
        self.pending: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self._depth = 1
        self._counter = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, prefix: str) -> str:
        """A name that nothing else uses."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def bind(self, prefix: str, value: object) -> str:
        """A name under which the function finds `value`."""
        name = self.variable(prefix)
        self.names[name] = value
        return name

    def literal(self, value: object) -> str:
        """An expression for a default: constants are written out, other objects bound."""
        if value is None or value == () or type(value) in (int, bool, str, bytes, float):
            return repr(value)
        return self.bind("value", value)

    def take_pending(self, *more: tuple[str, str]) -> tuple[list[str], Packer]:
        """The expressions that were waiting, then `more`, and the packer for all of them in big-endian order."""
        run = [*self.pending, *more]
        self.pending.clear()
        return [expression for expression, _ in run], Packer(">" + "".join(code for _, code in run))

    def function(self, head: str, title: str) -> Callable[..., Any]:
        """The function `head` names, made of the lines so far; `title` is its file name in a traceback."""
        source = head + "\n" + "\n".join(self._lines)
        exec(compile(source, f"<{title}>", "exec"), self.names)
        made: Callable[..., Any] = self.names[head.removeprefix("def ").partition("(")[0]]
        return made

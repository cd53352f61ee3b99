"""Where a file can be changed, and the sample that is drawn of these places.

The sample is drawn by the hash of seed and place, so that an edit elsewhere does not draw another one; one change is
drawn for each place. Text is left alone: docstrings, annotations, decorators, messages and what is logged.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from mutant_operators import operators
from mutant_rooms import TREE, files_of

Position = tuple[int, int]
Span = tuple[Position, Position]
UNCHANGED = "unchanged"
LOGGERS = {"log", "logger", "_log", "_logger"}
TOLD = {"__repr__", "__str__"}
"""Functions that only make text."""


@dataclass(frozen=True)
class Site:
    """A place, and the changes that can be made to it."""

    file: str
    function: str
    """Empty: it runs when the module is imported."""
    lines: tuple[int, int]
    """First and last line of the statement that it is in, without the statements within that."""
    key: str
    changes: tuple[tuple[str, int], ...]
    """Operator, and the how-manieth that it finds in the file."""


@dataclass(frozen=True)
class Mutant:
    file: str
    function: str
    operator: str
    before: str
    after: str
    lines: tuple[int, int]
    occurrence: int

    @property
    def identity(self) -> str:
        """Survives edits elsewhere. Twins, which are alike in all of this, are the same to whoever explains them."""
        return digest(self.file, self.function, self.operator, self.before, self.after)

    def mutated(self, root: Path = TREE) -> str:
        return _mutate((root / self.file).read_text(), self.operator, self.occurrence)

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def sample(room: str, count: int, seed: int, root: Path = TREE) -> list[Mutant]:
    """The same for the same seed, as long as the places are the same."""
    sites = [site for name in files_of(room, root) for site in sites_of(name, (root / name).read_text())]
    sites.sort(key=lambda site: digest(str(seed), site.key))
    chosen = []
    for site in sites[:count]:
        name, occurrence = site.changes[int(digest(str(seed), "change", site.key), 16) % len(site.changes)]
        chosen.append(_mutant(site, name, occurrence, (root / site.file).read_text()))
    return chosen


def control(room: str, root: Path = TREE) -> Mutant:
    """One that is no mutant: if it does not survive, it is not the mutants that the tests fail for."""
    file = files_of(room, root)[0]
    return Mutant(file, "all of it", UNCHANGED, "", "", (1, len((root / file).read_text().splitlines())), 0)


def sites_of(file: str, source: str) -> Iterator[Site]:
    shape = Shape(source)
    changes: dict[Span, list[tuple[str, int]]] = {}
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in operators().items():
        occurrence = 0
        for node in nodes:
            for start, end in operator.mutation_positions(node):
                if not shape.is_text(start):
                    changes.setdefault((start, end), []).append((name, occurrence))
                occurrence += 1
    lines = source.splitlines()
    seen: Counter[str] = Counter()
    for (start, end), found in sorted(changes.items()):
        function = shape.function_at(start)
        text = lines[start[0] - 1]
        column = start[1] - (len(text) - len(text.lstrip()))
        place = digest(file, function, text.strip(), str(column), str((end[0] - start[0], end[1] - start[1])))
        seen[place] += 1
        yield Site(file, function, shape.statement_at(start), f"{place}/{seen[place]}", tuple(found))


def _mutant(site: Site, operator: str, occurrence: int, source: str) -> Mutant:
    before, after = _changed(source, _mutate(source, operator, occurrence))
    return Mutant(site.file, site.function, operator, before, after, site.lines, occurrence)


def _mutate(source: str, operator: str, occurrence: int) -> str:
    if operator == UNCHANGED:
        return source
    mutated = mutate_code(source, operators()[operator], occurrence)
    if mutated is None:
        raise LookupError(f"{operator} does not find its place {occurrence}")
    return str(mutated)


def _changed(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, each on one line."""
    old, new = before.splitlines(), after.splitlines()
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return " ".join(line.strip() for line in old), " ".join(line.strip() for line in new)


class Shape:
    """What of a file is text, and which function and statement a position is in."""

    def __init__(self, source: str) -> None:
        self._text: list[Span] = []
        self._functions: list[tuple[Span, str]] = []
        self._statements: list[tuple[int, int]] = []
        self._walk(ast.parse(source), [])

    def is_text(self, position: Position) -> bool:
        return any(start <= position < end for start, end in self._text)

    def function_at(self, position: Position) -> str:
        """The outermost one whose body it is in: defaults and decorators run when the module is imported."""
        within = [name for (start, end), name in self._functions if start <= position < end]
        return within[0] if within else ""

    def statement_at(self, position: Position) -> tuple[int, int]:
        within = [span for span in self._statements if span[0] <= position[0] <= span[1]]
        return min(within, key=lambda span: span[1] - span[0], default=(position[0], position[0]))

    def _walk(self, node: ast.AST, names: list[str]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._define(child, [*names, child.name])
            elif _is_text(child):
                self._text.append(_span(child))
            else:
                if isinstance(child, ast.AnnAssign):
                    self._text.append(_span(child.annotation))
                if isinstance(child, ast.stmt | ast.excepthandler):
                    self._statements.append((child.lineno, _own_end(child)))
                self._walk(child, names)

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, names: list[str]) -> None:
        self._text += [_span(decorator) for decorator in node.decorator_list]
        first = node.body[0]
        if isinstance(node, ast.ClassDef):
            self._text.append(((node.lineno, node.col_offset), (first.lineno, first.col_offset)))
        else:
            self._text += _spans_of_signature(node)
            body = (first.lineno, first.col_offset), _span(node)[1]
            self._functions.append((body, ".".join(names)))
            if node.name in TOLD:
                self._text.append(body)
        self._statements.append((node.lineno, _own_end(node)))
        self._walk(node, names)


def _spans_of_signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Span]:
    """All of it but the defaults."""
    first = node.body[0]
    defaults = [default for default in [*node.args.defaults, *node.args.kw_defaults] if default is not None]
    ends = [(node.lineno, node.col_offset), *(_span(default)[1] for default in defaults)]
    starts = [*(_span(default)[0] for default in defaults), (first.lineno, first.col_offset)]
    return list(zip(sorted(ends), sorted(starts), strict=True))


def _own_end(node: ast.stmt | ast.excepthandler) -> int:
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        return max(int(node.lineno), int(body[0].lineno) - 1)
    return int(node.end_lineno or node.lineno)


def _span(node: Any) -> Span:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    if not isinstance(node, ast.Expr):
        return False
    called = node.value.func if isinstance(node.value, ast.Call) else None
    is_logged = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name | ast.Attribute)
    if is_logged:
        owner = called.value  # type: ignore[union-attr]
        return (owner.id if isinstance(owner, ast.Name) else owner.attr) in LOGGERS  # type: ignore[union-attr]
    return isinstance(node.value, ast.Constant)

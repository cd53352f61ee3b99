"""Who was tried with which outcome, who is explained, and the table of it all.

A kill counts as long as the file is the same, and so does a survival that is explained; one that is not, only as long
as the tests that were asked are the same, too.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from mutant_rooms import TREE, WORK, all_files, asked_files
from mutant_sites import Mutant, digest
from mutant_touching import Touched
from mutant_trials import IMPOSSIBLE, SURVIVED

VERDICTS = WORK / "verdicts.json"
SURVIVORS = Path(__file__).with_name("survivors.toml")
MOST_SECONDS = 25.0
MOST_SECONDS_AT_IMPORT = 20.0
"""Of tests that one mutant is shown, the fastest ones. A line of a module is run by every test of it."""
Tests = list[tuple[str, float]]


class Ledger:
    def __init__(self, touched: Touched) -> None:
        self._touched = touched
        self._by_line = _by_line(touched)
        self._verdicts: dict[str, dict[str, Any]] = json.loads(VERDICTS.read_text()) if VERDICTS.exists() else {}
        self._explained = explanations()
        self._slowest_s: dict[str, float] = {}
        for test, row in touched.items():
            self._slowest_s[_file_of(test)] = max(row["seconds"], self._slowest_s.get(_file_of(test), 0.0))
        # Now, for later a mutant may be in the copy.
        self._digests = {name: digest((TREE / name).read_text()) for name in [*all_files(), *asked_files()]}

    def tests_of(self, mutant: Mutant) -> Tests:
        lines = self._by_line.get(mutant.file, {})
        first, last = mutant.lines
        found = {test for line in range(first, last + 1) for test in lines.get(line, ())} if mutant.function else set()
        most_s = MOST_SECONDS if found else MOST_SECONDS_AT_IMPORT
        found = found or {test for tests in lines.values() for test in tests}
        return self._in_order(self._chosen(found, most_s))

    def _chosen(self, found: set[str], most_s: float) -> Tests:
        chosen: Tests = []
        for seconds, test in sorted((self._touched[test]["seconds"], test) for test in found):
            most_s -= seconds
            if most_s < 0:
                break
            chosen.append((test, seconds))
        return chosen

    def _in_order(self, tests: Tests) -> Tests:
        """File by file, the fastest file first: tests of a file may share what takes long to set up. Each gets the time
        of the slowest of its file, because any of them may be the one that sets it up."""
        by_file: dict[str, Tests] = {}
        for test, seconds in tests:
            by_file.setdefault(_file_of(test), []).append((test, seconds))
        files = sorted(by_file.values(), key=lambda rows: sum(seconds for _, seconds in rows))
        return [(test, self._slowest_s[_file_of(test)]) for rows in files for test, _ in rows]

    def job(self, mutants: list[Mutant], *, in_place: bool) -> str:
        rows = []
        sources = WORK / "sources"
        sources.mkdir(exist_ok=True)
        for mutant in mutants:
            source = sources / f"{mutant.identity}.py"
            source.write_text(mutant.mutated() if not in_place else "")
            rows.append(
                {
                    "identity": mutant.identity,
                    "file": mutant.file,
                    "source": None if in_place else str(source),
                    "tests": self.tests_of(mutant),
                }
            )
        return json.dumps(rows)

    def note(self, results: Path, mutants: list[Mutant]) -> None:
        by_identity = {mutant.identity: mutant for mutant in mutants}
        for line in results.read_text().splitlines():
            row = json.loads(line)
            mutant = by_identity[row.pop("identity")]
            self._verdicts[mutant.identity] = {**row, "file": self._file(mutant), "tests": self._tests(mutant)}
        VERDICTS.write_text(json.dumps(self._verdicts, indent=1))

    def verdict(self, mutant: Mutant) -> str | None:
        """None: nobody has tried, or something has changed since."""
        row = self._verdicts.get(mutant.identity)
        if row is None or row["file"] != self._file(mutant) or row["verdict"] == IMPOSSIBLE:
            return None
        is_open = row["verdict"] == SURVIVED and not self.is_explained(mutant)
        if is_open and row["tests"] != self._tests(mutant):
            return None
        return str(row["verdict"])

    def is_impossible(self, mutant: Mutant) -> bool:
        row = self._verdicts.get(mutant.identity, {})
        return row.get("verdict") == IMPOSSIBLE and row["file"] == self._file(mutant)

    def untried(self, mutants: list[Mutant]) -> list[Mutant]:
        return [mutant for mutant in mutants if self.verdict(mutant) is None]

    def is_explained(self, mutant: Mutant) -> bool:
        return mutant.identity in self._explained

    def unexplained(self, mutants: list[Mutant]) -> list[Mutant]:
        return [one for one in mutants if self.verdict(one) == SURVIVED and not self.is_explained(one)]

    def story(self, mutant: Mutant) -> str:
        asked = len(self.tests_of(mutant))
        lines = {
            "file": mutant.file,
            "function": mutant.function,
            "operator": mutant.operator,
            "before": mutant.before,
            "after": mutant.after,
        }
        rows = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in lines.items()]
        head = f"# line {mutant.lines[0]}, asked {asked} tests"
        return "\n".join(["", head, "[[survivor]]", *rows, 'why = ""'])

    def _file(self, mutant: Mutant) -> str:
        return self._digests[mutant.file]

    def _tests(self, mutant: Mutant) -> str:
        files = sorted({_file_of(test) for test, _ in self.tests_of(mutant)})
        return digest(*(self._digests[name] for name in files))


def explanations() -> set[str]:
    """The identities of those that are explained."""
    found = set()
    for row in tomllib.loads(SURVIVORS.read_text()).get("survivor", []):
        if not row["why"]:
            raise ValueError(f"a survivor is named but not explained: {row}")
        found.add(digest(row["file"], row["function"], row["operator"], row["before"], row["after"]))
    return found


def table(drawn: dict[str, list[Mutant]], ledger: Ledger) -> str:
    heads = ("room", "mutants", "killed", "timed out", "survived", "explained", "not tried")
    rows = [heads]
    total: Counter[str] = Counter()
    for room, mutants in drawn.items():
        counts: Counter[str] = Counter()
        for mutant in mutants:
            verdict = ledger.verdict(mutant) or "not tried"
            counts["explained" if verdict == SURVIVED and ledger.is_explained(mutant) else verdict] += 1
        counts["mutants"] = len(mutants)
        total += counts
        rows.append((room, *(str(counts[head]) for head in heads[1:])))
    rows.append(("all", *(str(total[head]) for head in heads[1:])))
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _file_of(test: str) -> str:
    return test.split("::")[0]


def _by_line(touched: Touched) -> dict[str, dict[int, list[str]]]:
    found: dict[str, dict[int, list[str]]] = {}
    for test, row in touched.items():
        for name, lines in row["lines"].items():
            for line in lines:
                found.setdefault(name, {}).setdefault(line, []).append(test)
    return found

"""The sweep's own parts: what it changes and leaves alone, whom it draws, and how it puts a mutant into a process."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
SURVIVORS = tomllib.loads(Path(__file__).with_name("survivors.toml").read_text()).get("survivor", [])
needs_the_tools = pytest.mark.skipif(
    importlib.util.find_spec("cosmic_ray") is None or importlib.util.find_spec("coverage") is None,
    reason="make mutants installs cosmic-ray and coverage",
)

SAMPLE = '''
"""Text with 1 + 1."""
import logging

logger = logging.getLogger("x")
LIMIT = 10


class Counter:
    """Counts to 3 + 4."""

    started: int = 0

    def __init__(self) -> None:
        self.count = 0

    @property
    def is_full(self) -> bool:
        return self.count >= LIMIT

    async def add(self, amount: int = 2) -> int:
        """Adds 5 + 6."""
        logger.info("adds %d", amount + 1)
        if amount is None:
            raise ValueError(f"no {1 + 2}")
        self.count += amount
        return self.count

    def later(self):
        def inner():
            return self.count + 1

        return inner

    def __repr__(self) -> str:
        return str(7 + 8)
'''


def changes(source: str) -> list[str]:
    from mutant_sites import _mutant, sites_of

    found = []
    for site in sites_of("sample.py", source):
        for operator, occurrence in site.changes:
            mutant = _mutant(site, operator, occurrence, source)
            found.append(f"{mutant.function}: {mutant.before} -> {mutant.after}")
    return found


@needs_the_tools
def test_text_is_left_alone_and_everything_else_is_changed_in_small_ways() -> None:
    assert sorted(changes(SAMPLE)) == sorted(
        [
            ": LIMIT = 10 -> LIMIT = 11",
            ": LIMIT = 10 -> LIMIT = 9",
            ": started: int = 0 -> started: int = 1",
            ": started: int = 0 -> started: int = -1",
            ": async def add(self, amount: int = 2) -> int: -> async def add(self, amount: int = 3) -> int:",
            ": async def add(self, amount: int = 2) -> int: -> async def add(self, amount: int = 1) -> int:",
            "Counter.__init__: self.count = 0 -> pass",
            "Counter.__init__: self.count = 0 -> self.count = 1",
            "Counter.__init__: self.count = 0 -> self.count = -1",
            *(
                f"Counter.is_full: return self.count >= LIMIT -> return self.count {other} LIMIT"
                for other in ("==", "!=", "<", "<=", ">")
            ),
            "Counter.add: if amount is None: -> if amount is not None:",
            "Counter.add: if amount is None: -> if not amount is None:",
            'Counter.add: raise ValueError(f"no {1 + 2}") -> pass',
            "Counter.add: self.count += amount -> pass",
            "Counter.later: return self.count + 1 -> return self.count - 1",
            "Counter.later: return self.count + 1 -> return self.count + 2",
            "Counter.later: return self.count + 1 -> return self.count + 0",
        ]
    )


@needs_the_tools
def test_the_same_seed_draws_the_same_mutants_though_lines_have_moved() -> None:
    from mutant_rooms import ROOMS, files_of
    from mutant_sites import sample, sites_of

    room = next(iter(ROOMS))
    first = sample(room, 10, 1, ROOT)
    assert [one.identity for one in sample(room, 10, 1, ROOT)] == [one.identity for one in first]
    assert [one.identity for one in sample(room, 10, 2, ROOT)] != [one.identity for one in first]
    for mutant in first:
        assert mutant.mutated(ROOT) != (ROOT / mutant.file).read_text()
    (name,) = files_of(room, ROOT)
    source = (ROOT / name).read_text()
    moved = source.replace("\n\nclass ", "\n\n# a line more\nclass ")
    assert {site.key for site in sites_of(name, source)} == {site.key for site in sites_of(name, moved)}


@needs_the_tools
def test_every_room_has_places_to_change() -> None:
    from mutant_rooms import ROOMS, files_of
    from mutant_sites import sites_of

    for room in ROOMS:
        names = files_of(room, ROOT)
        assert names, room
        for name in names:
            assert all(site.changes for site in sites_of(name, (ROOT / name).read_text())), name


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("sample_of_mutants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@needs_the_tools
def test_a_mutant_is_put_into_methods_properties_coroutines_and_closures_that_exist_already(tmp_path: Path) -> None:
    from mutant_trials import exchange

    path = tmp_path / "sample_of_mutants.py"
    path.write_text(SAMPLE)
    module = loaded(path)
    counter = module.Counter()
    inner = counter.later()
    mutated = SAMPLE.replace(">= LIMIT", "< LIMIT").replace("+= amount", "-= amount").replace("count + 1", "count - 1")
    exchange(path, mutated)
    assert counter.is_full
    assert asyncio.run(counter.add(2)) == -2
    assert inner() == -3
    assert counter.later()() == -3


@needs_the_tools
def test_a_file_with_other_functions_cannot_be_exchanged(tmp_path: Path) -> None:
    from mutant_trials import exchange

    path = tmp_path / "sample_of_mutants.py"
    path.write_text(SAMPLE)
    loaded(path)
    with pytest.raises(LookupError):
        exchange(path, SAMPLE.replace("def later", "def sooner"))


@needs_the_tools
def test_an_interrupted_runs_mutant_does_not_stay_in_the_copy(tmp_path: Path) -> None:
    from mutant_copy import refresh

    source, target = tmp_path / "source", tmp_path / "target"
    (source / "src").mkdir(parents=True)
    (source / "tests").mkdir()
    (source / "pyproject.toml").write_text("")
    (source / "src" / "one.py").write_text("x = 1")
    refresh(source, target)
    (target / "src" / "one.py").write_text("x = 2")
    (target / "src" / "two.py").write_text("y = 2")
    refresh(source, target)
    assert (target / "src" / "one.py").read_text() == "x = 1"
    assert not (target / "src" / "two.py").exists()


@pytest.mark.parametrize("survivor", SURVIVORS, ids=lambda row: f"{row['function']}: {row['before'][:40]}")
def test_an_explained_survivor_is_still_there_to_be_explained(survivor: dict[str, str]) -> None:
    source = " ".join(line.strip() for line in (ROOT / survivor["file"]).read_text().splitlines())
    assert survivor["before"] in source
    assert len(survivor["why"]) > 20

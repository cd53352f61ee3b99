"""The copy of the tree in which mutants live: made once, and brought up to date at every run."""

from __future__ import annotations

import filecmp
import os
import shutil
from pathlib import Path

from mutant_rooms import COPIED, ROOT, TREE, is_compiled_mutant

NOT_COPIED = {"__pycache__", ".hypothesis", ".pytest_cache"}


def refresh(source: Path = ROOT, target: Path = TREE) -> None:
    """Compares contents: a mutant that was left by an interrupted run is gone afterwards."""
    wanted = set()
    for name in COPIED:
        for path in _files(source / name):
            relative = path.relative_to(source)
            wanted.add(relative)
            copy = target / relative
            if not copy.exists() or not filecmp.cmp(path, copy, shallow=False):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)
    for name in COPIED:
        for path in _files(target / name):
            if path.relative_to(target) not in wanted:
                path.unlink()


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in NOT_COPIED and not name.endswith(".egg-info")]
        found += [Path(folder) / name for name in names if not is_compiled_mutant(name)]
    return found

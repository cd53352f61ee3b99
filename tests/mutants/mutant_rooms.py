"""Which files carry exactly-once, and which tests are asked whether a change of them is noticed.

Asked are unit tests, property tests and those in virtual time. The sink's own tests on a real broker come last, since
the order is by speed; nothing here starts Spark.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
"""The copy in which everything runs: the tree that somebody works in is never changed."""
COPIED = ("src", "tests", "pyproject.toml")

ROOMS = {
    "producer state": ("src/semel/log/producers.py",),
    "produce kernels": (
        "src/semel/log/row_kernel.py",
        "src/semel/log/append_kernel.py",
        "src/semel/log/ordinary_kernel.py",
        "src/semel/replication/term_kernel.py",
        "src/semel/broker/lane_kernel.py",
    ),
    "transactions": ("src/semel/coordinator/shard.py", "src/semel/coordinator/txn/*.py"),
    "groups": ("src/semel/coordinator/group/*.py",),
    "client": ("src/semel/client/producer/*.py",),
    "spark sink": tuple(
        f"src/semel/spark/{name}.py"
        for name in ("committer", "marker", "staging", "succession", "sink", "publishing", "refusals")
    ),
}

ASKED = (
    "tests/unit/log",
    "tests/unit/coordinator",
    "tests/unit/client",
    "tests/unit/peer",
    "tests/unit/replication",
    "tests/unit/broker",
    "tests/property",
    "tests/sim/test_log_power_loss.py",
    "tests/sim/test_transaction_power_loss.py",
    "tests/sim/test_simulation_seeds.py",
    "tests/spark/test_marker.py",
    "tests/spark/test_sink_*.py",
)
NOT_ASKED = "spark or kafka or alone"


def is_compiled_mutant(name: str) -> bool:
    """Whether a file is what one of these was compiled to, which would be loaded in place of its mutants."""
    stem = name.partition(".")[0]
    return name.endswith(".so") and any(Path(path).stem == stem for path in ROOMS["produce kernels"])


def files_of(room: str, root: Path = TREE) -> list[str]:
    """Paths from the root of the tree."""
    found = [path for pattern in ROOMS[room] for path in sorted(root.glob(pattern))]
    return [str(path.relative_to(root)) for path in found if path.name != "__init__.py"]


def all_files(root: Path = TREE) -> list[str]:
    return [name for room in ROOMS for name in files_of(room, root)]


def asked_files(root: Path = TREE) -> list[str]:
    found: list[Path] = []
    for pattern in ASKED:
        for path in sorted(root.glob(pattern)):
            found += [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    return [str(path.relative_to(root)) for path in found]

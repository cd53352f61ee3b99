"""What goes through a pipeline on a cluster, and the judge of what comes out: each record once, in order per key."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster_processes import ProcessFamily, StartedProcess
from cluster_program import Plan
from sink_world import Row

from real_broker import clean_environment

KEYS = 7


def numbered_rows(first: int, count: int, *, padding: int = 0) -> list[tuple[bytes, bytes]]:
    """Rows whose values say which key they have and which number, and go on for a while."""
    numbers = range(first, first + count)
    return [
        (b"key-%d" % (number % KEYS), b"key-%d/%d" % (number % KEYS, number) + padding * b".") for number in numbers
    ]


@dataclass(frozen=True)
class Verdict:
    lost: int
    duplicated: int
    strange: int
    """Rows that nobody has sent."""
    disordered_keys: int

    @property
    def is_good(self) -> bool:
        return self == Verdict(0, 0, 0, 0)


def judge(sent: Iterable[tuple[bytes, bytes]], found: Sequence[Row]) -> Verdict:
    """`found` as the partitions of the sink give it: a key is in one of them, so its rows stand in order."""
    expected = [(key, value.upper()) for key, value in sent]
    wanted, got = Counter(expected), Counter(found)
    by_key: dict[bytes | None, list[bytes]] = {}
    for key, value in dict.fromkeys(found):
        by_key.setdefault(key, []).append(value)
    in_order: dict[bytes | None, list[bytes]] = {}
    for key, value in expected:
        if (key, value) in got:
            in_order.setdefault(key, []).append(value)
    strange = {row for row in got if row not in wanted}
    return Verdict(
        lost=sum((wanted - got).values()),
        duplicated=sum(count - 1 for row, count in got.items() if count > 1 and row not in strange),
        strange=len(strange),
        disordered_keys=sum(
            [value for value in values if (key, value) not in strange] != in_order.get(key, [])
            for key, values in by_key.items()
        ),
    )


class DriverLauncher:
    """Starts drivers of one pipeline, again and again."""

    def __init__(self, family: ProcessFamily, root: Path) -> None:
        self._family = family
        self._root = root
        self._count = 0

    def start(self, plan: Plan, **environ: str) -> StartedProcess:
        self._count += 1
        file = self._root / f"plan-{self._count}.json"
        file.write_text(json.dumps(asdict(plan)))
        inherited = {name: value for name, value in clean_environment().items() if not name.startswith("PYSPARK_")}
        return self._family.start(
            [sys.executable, Path(__file__).parent / "cluster_program.py", file],
            self._root / f"driver-{self._count}.log",
            cwd=self._root,
            environ={**inherited, "SPARK_LOCAL_IP": "127.0.0.1", **environ},
        )


def spark_home(place: Path) -> Path:
    """A home of Spark's programs that is of this test only, as what runs there is kept in it: the package's, linked."""
    import pyspark

    package = Path(os.path.realpath(pyspark.__file__)).parent
    place.mkdir(parents=True)
    for name in ("bin", "sbin", "jars", "python"):
        (place / name).symlink_to(package / name)
    return place

"""`make bench`: everything that this project claims about speed, measured side by side in one run.

Writes a table in Markdown and JSON to bench/results. Figures are ratios of things measured in the same run; how fast
the machine is does not matter, that nothing else runs on it does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from brokers import NOTE
from clients import CONSUMING, PRODUCING, Row, measure
from measured import Measured, table

from real_broker import RealBroker

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often each has its turn (default 7)")
    parser.add_argument("--share", type=float, default=1.0, help="of the records of a full run, such as 0.1")
    parser.add_argument("--only", choices=[*GROUPS], action="append", help="some of the tables; may be repeated")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for name in options.only or GROUPS:
        with tempfile.TemporaryDirectory(prefix="semel-bench-") as root:
            rows = GROUPS[name](Path(root), options.rounds, options.share)
        text = f"{_heading(name)}\n\n{table(rows)}"
        (RESULTS / f"{name}.md").write_text(text)
        (RESULTS / f"{name}.json").write_text(
            json.dumps([{**row._asdict(), "ratio": row.ratio} for row in rows], indent=1)
        )
        print(f"\n{name}: {text}", flush=True)
    return 0


def _clients(root: Path, rounds: int, share: float) -> list[Measured]:
    found = _on_new_broker(root / "produce", PRODUCING, rounds, share, fill=False)
    return found + _on_new_broker(root / "consume", CONSUMING, rounds, share, fill=True)


def _pipeline(root: Path, rounds: int, share: float) -> list[Measured]:
    import pipeline

    return pipeline.measure(root, rounds, share, _tell)


def _broker(root: Path, rounds: int, share: float) -> list[Measured]:
    import broker

    reason = broker.skip_reason()
    if reason is not None:
        _tell(f"the broker's rows are left out: {reason}")
        return []
    return broker.measure(root, rounds, share, _tell)


GROUPS: dict[str, Callable[[Path, int, float], list[Measured]]] = {
    "broker": _broker,
    "clients": _clients,
    "pipeline": _pipeline,
}


def _heading(name: str) -> str:
    common = f"Measured on {os.cpu_count()} cores, broker on the same machine, page cache; medians."
    return f"{common} {NOTE}" if name == "broker" else common


def _on_new_broker(root: Path, rows: list[Row], rounds: int, share: float, *, fill: bool) -> list[Measured]:
    root.mkdir()
    broker = RealBroker(root, flush="os").start()
    try:
        sizes = {100: "values-of-100", 1000: "values-of-1000"}
        if fill:
            for size, topic in sizes.items():
                _tell(f"writing what is to be read, {size} B each")
                most = 4_100_000 if size == 100 else 820_000
                _fill(broker.address, topic, max(int(most * share), 25_000), size)
        return measure(broker.address, rows, sizes, rounds, share, _tell)
    finally:
        broker.stop()


def _fill(address: str, topic: str, count: int, size: int) -> None:
    from client_workers import semel_columns_produce

    semel_columns_produce(address, topic, count, size)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

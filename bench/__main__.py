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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from clients import CONSUMING, PRODUCING, Result, Row, measure

from real_broker import RealBroker

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each client has its turn (default 5)")
    parser.add_argument("--share", type=float, default=1.0, help="of the records of a full run, such as 0.1")
    parser.add_argument("--only", choices=["produce", "consume"], help="one half of the rows")
    options = parser.parse_args()
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as root:
        if options.only != "consume":
            results += _on_new_broker(Path(root) / "produce", PRODUCING, options.rounds, options.share, fill=False)
        if options.only != "produce":
            results += _on_new_broker(Path(root) / "consume", CONSUMING, options.rounds, options.share, fill=True)
    table = _table(results)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "clients.md").write_text(table)
    (RESULTS / "clients.json").write_text(json.dumps([result._asdict() for result in results], indent=1))
    print(table)
    return 0


def _on_new_broker(root: Path, rows: list[Row], rounds: int, share: float, *, fill: bool) -> list[Result]:
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


def _table(results: list[Result]) -> str:
    lines = [
        f"Measured on {os.cpu_count()} cores, broker on the same machine, page cache; median of the rounds.",
        "",
        "| | value | records/s | spread | beside | ratio | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        goal = "" if result.goal is None else f"{result.goal:g}"
        lines.append(
            f"| {result.name} | {result.value_bytes} B | {result.records_per_second:,.0f} | {result.spread:.0%} "
            f"| {result.beside} | {result.ratio:.1f} | {goal} |"
        )
    return "\n".join(lines) + "\n"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

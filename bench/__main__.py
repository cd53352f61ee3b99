"""`make bench`: everything that this project claims about speed, measured side by side in one run.

Writes a table in Markdown, the same in JSON and a picture to bench/results. Figures are ratios of things measured in
the same run; how fast the machine is does not matter, that nothing else runs on it does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
# Another one, such as 4.1.1, if the environment says so. tests/apache_kafka.py reads it when it is imported.
os.environ.setdefault("SEMEL_KAFKA_VERSION", "4.3.1")

from cases import Progress
from clients import CONSUMING, PRODUCING, Row, measure
from curves import Curve
from measured import Measured, table

from real_broker import RealBroker

RESULTS = Path(__file__).parent / "results"


class Options(NamedTuple):
    """`words` chooses rows: those with the words in their name."""

    rounds: int
    share: float
    words: str


class Group(NamedTuple):
    """`measure` finds the rows; `note` says under which conditions; `title` stands above the picture; `rounds` is how
    often each has its turn if nobody says."""

    title: str
    measure: Callable[[Path, Options], Sequence[Measured] | Sequence[Curve]]
    note: Callable[[], str] = lambda: ""
    rounds: int = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, help="how often each has its turn (default 5, the pipeline 7)")
    parser.add_argument("--share", type=float, default=1.0, help="of the records of a full run, such as 0.1")
    parser.add_argument("--only", choices=[*GROUPS], action="append", help="some of the tables; may be repeated")
    parser.add_argument("--rows", default="", help="of broker and growth: rows with these words in their name")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where tables and pictures go")
    options = parser.parse_args()
    options.results.mkdir(exist_ok=True, parents=True)
    for name in options.only or GROUPS:
        group = GROUPS[name]
        with tempfile.TemporaryDirectory(prefix="semel-bench-") as root:
            chosen = Options(options.rounds or group.rounds, options.share, options.rows)
            found = group.measure(Path(root), chosen)
        if found:
            # A part does not take the place of a whole table.
            stem = f"{name}-part" if options.rows else name
            print(f"\n{name}: {_write(options.results / stem, group, found)}", flush=True)
    return 0


def _write(stem: Path, group: Group, found: Sequence[Measured] | Sequence[Curve]) -> str:
    """Table, JSON and picture; returns the table."""
    import plots

    curves = [one for one in found if isinstance(one, Curve)]
    rows = [one.row() if isinstance(one, Curve) else one for one in found]
    common = f"Measured on {os.cpu_count()} cores, broker on the same machine; medians, spread from lowest to highest."
    text = f"{common} {group.note()}".rstrip() + f"\n\n{table(rows)}"
    stem.with_suffix(".md").write_text(text)
    as_json = [{**row._asdict(), "ratio": row.ratio} for row in rows]
    for entry, curve in zip(as_json, curves, strict=False):
        entry["points"] = [(point.size, point.cost) for point in curve.points]
    stem.with_suffix(".json").write_text(json.dumps(as_json, indent=1))
    if curves:
        plots.lines(group.title, curves, stem.with_suffix(".png"))
    else:
        plots.bars(group.title, rows, stem.with_suffix(".png"))
    return text


def _clients(root: Path, options: Options) -> list[Measured]:
    found = _on_new_broker(root / "produce", PRODUCING, options, fill=False)
    return found + _on_new_broker(root / "consume", CONSUMING, options, fill=True)


def _pipeline(root: Path, options: Options) -> list[Measured]:
    import pipeline

    return pipeline.measure(root, options.rounds, options.share, Progress())


def _broker(root: Path, options: Options) -> list[Measured]:
    import broker

    reason = broker.skip_reason()
    if reason is not None:
        Progress()(f"the broker's rows are left out: {reason}")
        return []
    return broker.measure(root, options.rounds, options.share, options.words)


def _broker_note() -> str:
    import brokers

    return brokers.note()


def _growth(root: Path, options: Options) -> list[Curve]:
    import growth

    return growth.measure(root, options.share, options.words)


def _growth_note() -> str:
    import growth

    return growth.NOTE


GROUPS = {
    "broker": Group("semel beside Apache Kafka", _broker, _broker_note),
    "growth": Group("semel: what one request costs, with more and more there", _growth, _growth_note),
    "clients": Group("semel's Python client beside the others", _clients),
    "pipeline": Group("semel's Spark pipeline beside Spark's own Kafka connector", _pipeline, rounds=7),
}


def _on_new_broker(root: Path, rows: list[Row], options: Options, *, fill: bool) -> list[Measured]:
    root.mkdir()
    broker = RealBroker(root, flush="os").start()
    progress = Progress()
    try:
        sizes = {100: "values-of-100", 1000: "values-of-1000"}
        if fill:
            for size, topic in sizes.items():
                progress(f"writing what is to be read, {size} B each")
                most = 4_100_000 if size == 100 else 820_000
                _fill(broker.address, topic, max(int(most * options.share), 25_000), size)
        return measure(broker.address, rows, sizes, options.rounds, options.share, progress)
    finally:
        broker.stop()


def _fill(address: str, topic: str, count: int, size: int) -> None:
    from client_workers import semel_columns_produce

    semel_columns_produce(address, topic, count, size)


if __name__ == "__main__":
    sys.exit(main())

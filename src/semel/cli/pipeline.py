"""`semel pipeline`: runs a pipeline from its file, tells how far one has come, adopts a checkpoint.

Neither Spark nor the client is imported before a subcommand is chosen.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from semel.cli.live import add_live_arguments, draw_again, title
from semel.cli.output import Output

if TYPE_CHECKING:
    from semel.spark.pipeline.status import Status
    from semel.spark.pipeline.target import Target

_EXAMPLES = """exit codes: 0 it ended well or was stopped, 1 it failed, 2 the call, the file, a topic or the SQL is
wrong, 130 a second Ctrl-C ended it at once. See docs/pipelines.md for the keys of a file.

examples:
  semel pipeline run orders.toml
  semel pipeline run shout.py --from orders --to shouted --available-now
  semel pipeline run orders.toml --check
  semel pipeline status orders.toml
  semel pipeline status orders.checkpoint --json
  semel pipeline adopt orders.toml
"""
_STATUS_EXAMPLES = """examples:
  semel pipeline status orders.toml
  semel pipeline status orders.checkpoint --address localhost:9092 --json
  semel pipeline status orders.toml --watch --every 5
"""
_ADOPT_EXAMPLES = """examples:
  semel pipeline adopt orders.toml
  semel pipeline adopt orders.checkpoint --address localhost:9092 --batch 41 --yes
  semel pipeline adopt totals.checkpoint --address localhost:9092 --app-id totals
  semel pipeline adopt orders.toml --json
"""
_RUN_EXAMPLES = """A file is TOML:

  address = "localhost:9092"       # without it an embedded broker is started
  [source]
  topics = ["orders"]
  format = "json"
  schema = "id BIGINT NOT NULL, amount DOUBLE"
  [sink]
  topic = "large-orders"
  key = "id"
  # and at the top: sql = "SELECT id, amount FROM input WHERE amount > 100"

or Python:

  settings = {"source": {"topics": ["orders"]}, "sink": {"topic": "shouted"}}
  def pipeline(df):
      return df.selectExpr("key", "upper(CAST(value AS STRING)) AS value")

examples:
  semel pipeline run orders.toml
  semel pipeline run shout.py --from orders --to shouted --available-now
  semel pipeline run orders.toml --available-now --json
  semel pipeline run orders.toml --master spark://host:7077 --conf spark.executor.memory=4g
"""
_NOTHING_TO_ADOPT = "the marker fits the checkpoint, there is nothing to adopt"
_OF_SPARK = ("pyspark", "py4j", "pyarrow")
_RAW = argparse.RawDescriptionHelpFormatter


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)

    run = actions.add_parser("run", help="run the pipeline of a file", epilog=_RUN_EXAMPLES, formatter_class=_RAW)
    run.add_argument("file", type=Path, metavar="FILE", help="a TOML file, or a Python file with a function pipeline")
    run.add_argument("--address", metavar="HOST:PORT", help="of the cluster, instead of the file's")
    run.add_argument(
        "--from", dest="topics", action="append", default=[], metavar="TOPIC", help="read it; may be repeated"
    )
    run.add_argument("--to", dest="sink_topic", metavar="TOPIC", help="write to it")
    run.add_argument("--checkpoint", metavar="DIR", help="instead of the file's")
    run.add_argument("--available-now", action="store_true", help="process what is there, then end")
    run.add_argument("--master", metavar="URL", help="where Spark runs, such as local[4] or spark://host:7077")
    run.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark; may be repeated"
    )
    run.add_argument("--check", action="store_true", help="check file, topics and SQL, and run nothing")
    run.add_argument("--json", action="store_true", help="print a line of JSON for each batch and event, for programs")
    run.set_defaults(run=_run)

    status = actions.add_parser(
        "status",
        help="batches, offsets, marker and lag of a checkpoint",
        epilog=_STATUS_EXAMPLES,
        formatter_class=_RAW,
    )
    _add_target(status)
    status.add_argument("--json", action="store_true", help="for programs")
    status.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
    add_live_arguments(status)
    status.set_defaults(run=_status)

    adopt = actions.add_parser(
        "adopt",
        help="make the marker fit a checkpoint that was restored, copied or written by another sink",
        description="Makes the marker fit a checkpoint. Shows what that means, and asks.",
        epilog=_ADOPT_EXAMPLES,
        formatter_class=_RAW,
    )
    _add_target(adopt)
    adopt.add_argument("--batch", type=int, metavar="N", help="the last batch that counts as published, -1 for none")
    adopt.add_argument("--yes", action="store_true", help="do not ask")
    adopt.add_argument(
        "--json", action="store_true", help="for programs: what it would do, and with --yes what it has done"
    )
    adopt.set_defaults(run=_adopt)


def _add_target(command: argparse.ArgumentParser) -> None:
    command.add_argument("target", metavar="CHECKPOINT", help="a checkpoint, or the file of a pipeline")
    command.add_argument("--address", metavar="HOST:PORT", help="of the cluster, if the checkpoint does not know it")
    command.add_argument(
        "--app-id", default="", metavar="NAME", help="of a publish_each in a program of your own: its marker"
    )
    command.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the write, such as kafka.security.protocol=SSL or markerTopic=...; may be repeated",
    )


def _run(options: argparse.Namespace) -> int:
    def run() -> int:
        from semel.spark.pipeline.definition import AVAILABLE_NOW
        from semel.spark.pipeline.file import Overrides, load_pipeline
        from semel.spark.pipeline.progress import JsonLines, ProgressLine
        from semel.spark.pipeline.run import run_pipeline

        overrides = Overrides(
            address=options.address,
            checkpoint=options.checkpoint,
            trigger=AVAILABLE_NOW if options.available_now else None,
            topics=tuple(options.topics),
            sink_topic=options.sink_topic,
            spark=_spark_of(options.master, options.conf),
        )
        pipeline = load_pipeline(options.file, overrides)
        shown = JsonLines(sys.stdout) if options.json else ProgressLine(sys.stdout, is_terminal=sys.stdout.isatty())
        run_pipeline(pipeline, shown, only_check=options.check)
        return 0

    return _told(run)


def _spark_of(master: str | None, given: list[str]) -> dict[str, str]:
    from semel.spark.pipeline.errors import PipelineRefused

    settings = {} if master is None else {"master": master}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name.strip().startswith("spark."):
            raise PipelineRefused(f"--conf {text!r} is not allowed; allowed: spark.NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings


def _status(options: argparse.Namespace) -> int:
    def show() -> int:
        from semel.spark.pipeline.target import Target

        target = Target.of(options.target, options.address, options.option, options.app_id)
        if options.watch:
            return _watch(options, target)
        with target.status() as (status, _):
            print(status.as_json() if options.json else "\n".join(status.lines()))
        return 0

    return _told(show)


def _watch(options: argparse.Namespace, target: Target) -> int:
    """The status again and again: what it asks blocks, so a thread of its own asks."""
    import asyncio

    def ask() -> Status:
        with target.status() as (status, _):
            return status

    async def draw(picture: Output) -> None:
        status = await asyncio.to_thread(ask)
        if picture.is_json:
            picture.json_line(json.loads(status.as_json()))
            return
        title(picture, "pipeline")
        for line in status.lines():
            picture.line(line)

    return asyncio.run(draw_again(options, Output.of(options), draw))


def _adopt(options: argparse.Namespace) -> int:
    def adopt() -> int:
        from semel.spark.pipeline.adopt import what_adopting_does
        from semel.spark.pipeline.errors import PipelineRefused
        from semel.spark.pipeline.target import Target

        target = Target.of(options.target, options.address, options.option, options.app_id)
        with target.status() as (status, write_options):
            if not status.is_marker_known:
                raise PipelineRefused("the marker is in a database: give the pipeline's file instead of its checkpoint")
            is_needed = not status.fits or options.batch is not None
            effects = list(what_adopting_does(status, options.batch)) if is_needed else []
            if not options.json:
                print("\n".join(effects) or f"{_NOTHING_TO_ADOPT}; next: {status.next}")
            is_meant = is_needed and (options.yes or (not options.json and _says_yes(status)))
            number = target.adopt(write_options, status, options.batch) if is_meant else None
            if options.json:
                print(json.dumps(_adoption(status, effects, number), ensure_ascii=False))
            elif number is not None:
                print(f"adopted: batch {number + 1} comes next")
            elif is_needed:
                print("nothing was changed")
            return 0 if is_meant or not is_needed else 1

    return _told(adopt)


def _adoption(status: Status, effects: list[str], number: int | None) -> dict[str, object]:
    """What adopting does or would do. `number` is the batch that the marker was set to, None if nothing was changed."""
    return {
        "query_id": status.query_id,
        "checkpoint": status.checkpoint,
        "fits": status.fits,
        "effects": effects,
        "adopted": number is not None,
        "next_batch": None if number is None else number + 1,
    }


def _says_yes(status: Status) -> bool:
    if not sys.stdin.isatty():
        print("semel pipeline adopt: nobody can be asked here: say --yes if it is meant", file=sys.stderr)
        return False
    return input(f"Adopt the checkpoint of {status.query_id}? Type yes: ").strip().lower() == "yes"


def _told(work: Callable[[], int]) -> int:
    """The exit code of `work`; what goes wrong is told in words."""
    try:
        from semel.spark.pipeline.errors import PipelineError

        try:
            return work()
        except PipelineError as error:
            for line in str(error).splitlines():
                print(f"semel pipeline: {line}", file=sys.stderr)
            return error.exit_code
    except ImportError as error:
        if error.name not in _OF_SPARK:
            raise
        print(f"semel pipeline: {error.name} is not installed: pip install 'semel[spark]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130

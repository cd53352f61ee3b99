"""A small file in the checkpoint that says by which address the pipeline was run last: so that `status` and `adopt` can
be told the checkpoint alone. It holds no secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from semel.spark.object_stores import Hadoop
from semel.spark.pipeline.definition import Pipeline, TopicSink
from semel.spark.pipeline.embedded import AlreadyRuns, Broker
from semel.spark.pipeline.errors import PipelineError
from semel.spark.places import absolute_uri, open_folder
from semel.spark.sink_options import DEFAULT_MARKER_TOPIC

NAME = "semel-pipeline.json"


@dataclass(frozen=True)
class Notes:
    address: str
    broker_data: str | None
    """Of the embedded broker, which may not be running now."""
    marker_topic: str | None
    """None: the sink is a table, and its database remembers."""
    transactional_id_prefix: str = ""


def notes_of(pipeline: Pipeline, address: str) -> Notes:
    embedded = str(pipeline.broker.data) if pipeline.address is None else None
    if not isinstance(pipeline.sink, TopicSink):
        return Notes(address, embedded, None)
    options = {name.lower(): text for name, text in pipeline.sink.options.items()}
    topic = options.get("markertopic", DEFAULT_MARKER_TOPIC)
    return Notes(address, embedded, topic, options.get("transactionalidprefix", ""))


def remember(checkpoint: str, notes: Notes, hadoop: Hadoop = ()) -> None:
    open_folder(absolute_uri(checkpoint), hadoop).write(NAME, json.dumps(asdict(notes), indent=1).encode())


def recall(checkpoint: str) -> Notes | None:
    """None if no pipeline of ours has run with it."""
    try:
        return Notes(**json.loads(open_folder(absolute_uri(checkpoint)).read(NAME)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise PipelineError(f"{checkpoint}/{NAME} cannot be read: {error}; give the address by --address") from error


@contextmanager
def reachable(notes: Notes) -> Iterator[str]:
    """The address; an embedded broker that is not running is started for as long as this lasts."""
    if notes.broker_data is None:
        yield notes.address
        return
    broker = Broker(Path(notes.broker_data), 0)
    try:
        address = broker.start()
    except AlreadyRuns:
        # Then the pipeline runs, and has noted its address; an address that merely answers could be anybody's.
        address = notes.address
    try:
        yield address
    finally:
        broker.stop()

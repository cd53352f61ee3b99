"""A pipeline as its file defines it, and the options of the source and the sink that follow from it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Offsets: TypeAlias = Mapping[str, Mapping[str, int]]

ONLY_SOURCE = "input"
"""What a source can also be called in SQL if it is the only one."""
AVAILABLE_NOW = "available-now"
_START_OPTIONS = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")


@dataclass(frozen=True)
class Watermark:
    column: str
    delay: str


@dataclass(frozen=True)
class Source:
    topics: tuple[str, ...]
    pattern: str | None
    format: str
    schema: str | None
    view: str
    starting: str | Offsets
    watermark: Watermark | None
    options: Mapping[str, str] = field(repr=False)  # they may hold a password

    def read_options(self, pipeline: Pipeline, address: str) -> dict[str, str]:
        """Of `format("semel")`."""
        given = {name.lower() for name in self.options}
        options = {**pipeline.kafka_options(address), "queryName": pipeline.name}
        if self.pattern is not None:
            options["subscribePattern"] = self.pattern
        else:
            options["subscribe"] = ",".join(self.topics)
        if not given & set(_START_OPTIONS):
            starting = self.starting
            options["startingOffsets"] = starting if isinstance(starting, str) else json.dumps(starting)
        options |= self.options
        if pipeline.dead_letter_topic is not None:
            # A dead letter keeps the headers of the record.
            options = {name: text for name, text in options.items() if name.lower() != "includeheaders"}
            options["includeHeaders"] = "true"
        return options

    def reads(self, topic: str) -> bool:
        if self.pattern is None:
            return topic in self.topics
        try:
            return re.search(self.pattern, topic) is not None
        except re.error:
            return False  # told when the options are checked


@dataclass(frozen=True)
class TopicSink:
    topic: str
    format: str
    key: str | None
    schema: str | None
    options: Mapping[str, str] = field(repr=False)  # they may hold a password

    def write_options(self, pipeline: Pipeline, address: str) -> dict[str, str]:
        options = {**pipeline.kafka_options(address), "checkpointLocation": pipeline.checkpoint}
        if pipeline.dead_letter_topic is None:
            options["topic"] = self.topic
        else:
            # Rows for both topics are in one write, and so in one transaction; a column says which is for which.
            options["deadLetterTopic"] = pipeline.dead_letter_topic
        return {**options, **self.options}


@dataclass(frozen=True)
class TableSink:
    table: str
    url: str = field(repr=False)  # it may hold a password
    keys: tuple[str, ...]
    create: bool


@dataclass(frozen=True)
class EmbeddedBroker:
    port: int
    data: Path


@dataclass(frozen=True)
class Pipeline:
    path: Path
    name: str
    address: str | None
    """None: the embedded broker's, once it runs."""
    checkpoint: str
    trigger: str
    sql: str | None
    function: Callable[..., Any] | None
    """From DataFrames to a DataFrame, instead of SQL."""
    dead_letter_topic: str | None
    create_topics: bool
    sources: tuple[Source, ...]
    sink: TopicSink | TableSink
    broker: EmbeddedBroker
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    master: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)

    def kafka_options(self, address: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": address, **{f"kafka.{name}": text for name, text in self.kafka.items()}}

    @property
    def log(self) -> Path:
        """Where Spark's own log goes: beside the checkpoint, or beside the file if that is not on this machine."""
        if self.local_checkpoint is None:
            return self.path.with_suffix(".log")
        return self.local_checkpoint.with_name(f"{self.local_checkpoint.name}.log")

    @property
    def local_checkpoint(self) -> Path | None:
        return local_path(self.checkpoint)


def local_path(location: str) -> Path | None:
    """The directory that a location means; None if it is on another file system."""
    found = re.fullmatch(r"file:(?://)?(/.*)", location)
    if found is not None:
        return Path(found[1])
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", location) else Path(location)

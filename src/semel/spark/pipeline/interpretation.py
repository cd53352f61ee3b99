"""From the table of a pipeline file to the pipeline that it means. Problems are gathered, and raised together."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semel.client.errors import BadSetting
from semel.spark.databases import database_for
from semel.spark.pipeline.avro_schema import BadAvroSchema, parse_schema
from semel.spark.pipeline.definition import (
    AVAILABLE_NOW,
    EmbeddedBroker,
    Pipeline,
    Source,
    TableSink,
    TopicSink,
    Watermark,
    local_path,
)
from semel.spark.pipeline.errors import PipelineRefused
from semel.spark.pipeline.keys import flat, problems_in

FUNCTION = "pipeline"
OF_TABLE = ("url", "keys", "create")
_OF_TOPIC = ("format", "key", "schema", "schema_file", "options")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PAUSE = re.compile(r"\d+ (?:milliseconds?|seconds?|minutes?|hours?|days?)")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SAID = {
    "kafka.bootstrap.servers": "address",
    "checkpointlocation": "checkpoint",
    "path": "checkpoint",
    "queryname": "name",
}
_SAID_BY_SOURCE = {**_SAID, "subscribe": "source.topics", "subscribepattern": "source.pattern"}
_SAID_BY_SINK = {**_SAID, "topic": "sink.topic", "deadlettertopic": "dead_letter_topic"}


@dataclass
class Interpretation:
    """Of one file. Problems are gathered, and raised together."""

    path: Path
    environ: Mapping[str, str] = field(repr=False)  # it may hold a password
    problems: list[str] = field(default_factory=list)

    def pipeline(self, table: Mapping[str, Any], function: Callable[..., Any] | None) -> Pipeline:
        self.problems += problems_in(table)
        self._raise()  # what follows relies on kinds
        name = table.get("name", self.path.stem)
        if _NAME.fullmatch(name) is None:
            self._problem("name", f"{name!r} is not allowed; allowed: letters, digits, '.', '_' and '-'")
        checkpoint = self._location(table.get("checkpoint", f"{name}.checkpoint"))
        sources = self._sources(table.get("source"))
        made = Pipeline(
            path=self.path,
            name=name,
            address=None if "address" not in table else self._filled("address", table["address"]),
            checkpoint=checkpoint,
            trigger=self._trigger(table.get("trigger", "0 seconds")),
            sql=None if function is not None else self._text(table, "sql", ""),
            function=function,
            dead_letter_topic=table.get("dead_letter_topic"),
            create_topics=table.get("create_topics", "address" not in table),
            sources=sources,
            sink=self._sink(table.get("sink"), sources, "dead_letter_topic" in table),
            broker=self._broker(table, checkpoint),
            kafka=self._settings(table, "kafka", ""),
            **self._spark(table),
        )
        self._check_function(made)
        self._check_topics(made)
        self._raise()
        self._check_options(made)
        self._raise()
        return made

    # -- the parts

    def _sources(self, given: Any) -> tuple[Source, ...]:
        if given is None:
            self._problem("source", 'is missing: say what is read, such as [source] topics = ["orders"]')
            return ()
        tables = given if isinstance(given, list) else [given]
        sources = tuple(
            self._source(table, f"source[{number}]." if isinstance(given, list) else "source.", len(tables) == 1)
            for number, table in enumerate(tables, 1)
        )
        views = [source.view for source in sources]
        for view in {view for view in views if views.count(view) > 1}:
            self._problem("source", f"several sources are called {view!r}: give each a view of its own")
        return sources

    def _source(self, table: Mapping[str, Any], prefix: str, is_alone: bool) -> Source:
        topics = _texts(table.get("topics", ()))
        if ("topics" in table) == ("pattern" in table):
            self._problem(prefix + "topics", "either topics or pattern says what is read, and one is needed")
        form = table.get("format", "raw")
        watermark = table.get("watermark")
        for name in ("column", "delay"):
            if watermark is not None and name not in watermark:
                self._problem(f"{prefix}watermark.{name}", "is missing")
        if watermark is not None and not _PAUSE.fullmatch(watermark.get("delay", "1 second")):
            allowed = "a number and a unit, such as '10 minutes'"
            self._problem(f"{prefix}watermark.delay", f"{watermark['delay']!r} is not allowed; allowed: {allowed}")
        complete = watermark is not None and "column" in watermark and "delay" in watermark
        return Source(
            topics=topics,
            pattern=table.get("pattern"),
            format=form,
            schema=self._schema(table, prefix, form),
            view=self._view(table, prefix, topics, is_alone),
            starting=table.get("starting", "earliest"),
            watermark=Watermark(watermark["column"], watermark["delay"]) if complete and watermark else None,
            options=self._settings(table, "options", prefix),
        )

    def _view(self, table: Mapping[str, Any], prefix: str, topics: tuple[str, ...], is_alone: bool) -> str:
        view: str | None = table.get("view")
        if view is not None:
            if _VIEW.fullmatch(view) is None:
                self._problem(prefix + "view", f"{view!r} is not allowed; allowed: letters, digits and '_'")
            return view
        if len(topics) == 1:
            return re.sub(r"^(?=\d)", "_", re.sub(r"\W", "_", topics[0], flags=re.ASCII))
        if not is_alone:
            self._problem(prefix + "view", "is missing: a source of several topics needs a name among others")
        return "input"

    def _sink(self, table: Any, sources: tuple[Source, ...], has_dead_letters: bool) -> TopicSink | TableSink:
        if table is None or ("topic" in table) == ("table" in table):
            what = "either topic or table says where rows go, and one is needed"
            self._problem("sink", what if table else f"is missing: {what}")
            return TopicSink("", "raw", None, None, {})
        others = OF_TABLE if "topic" in table else _OF_TOPIC
        for name in others:
            if name in table:
                kind = "table" if "topic" in table else "topic"
                self._problem(f"sink.{name}", f"is for a {kind}: leave it out")
        if "topic" in table:
            default = "raw" if all(source.format == "raw" for source in sources) else "json"
            form = table.get("format", default)
            if form == "raw" and "key" in table:
                self._problem("sink.key", "is not for raw: give the rows a column 'key'")
            if form == "json" and ("schema" in table or "schema_file" in table):
                self._problem("sink.schema", "is for avro: of json, the columns of the rows are the schema")
            schema = None if form == "json" else self._schema(table, "sink.", form)
            options = self._settings(table, "options", "sink.")
            return TopicSink(table["topic"], form, table.get("key"), schema, options)
        if "url" not in table:
            self._problem("sink.url", "is missing: the database, such as sqlite:///orders.db")
        if has_dead_letters:
            self._problem(
                "dead_letter_topic", "is not for a table: no transaction spans a database and a topic; leave it out"
            )
        url = self._database(self._filled("sink.url", table.get("url", "")))
        return TableSink(table["table"], url, _texts(table.get("keys", ())), table.get("create", False))

    def _database(self, url: str) -> str:
        """A file of SQLite is beside the pipeline's, unless its path is absolute."""
        found = re.fullmatch(r"sqlite:///(?!/)(.+)", url)
        return url if found is None else f"sqlite:///{(self.path.parent / found[1]).absolute()}"

    def _broker(self, table: Mapping[str, Any], checkpoint: str) -> EmbeddedBroker:
        given = table.get("broker", {})
        if given and "address" in table:
            self._problem("broker", "is for the embedded one, and address names another: leave one of them out")
        if not 0 <= given.get("port", 0) <= 65535:
            self._problem("broker.port", f"{given['port']} is not allowed; allowed: 0 to 65535")
        local = local_path(checkpoint)
        if local is None and "address" not in table and "data" not in given:
            self._problem("broker.data", "is missing: the checkpoint, beside which it would be, is not on this machine")
        beside = local or Path(self.path.stem)
        data = self._location(given["data"]) if "data" in given else str(beside.with_name(f"{beside.name}.broker"))
        return EmbeddedBroker(given.get("port", 0), Path(data))

    def _spark(self, table: Mapping[str, Any]) -> dict[str, Any]:
        settings = self._settings(table, "spark", "")
        master = settings.pop("master", None) or settings.pop("spark.master", None)
        for name in settings:
            if not name.startswith("spark."):
                self._problem(f"spark.{name}", "is no setting of Spark: allowed are master, and names that begin with "
                              "'spark.'")  # fmt: skip
        return {"master": master, "spark": settings}

    # -- values

    def _schema(self, table: Mapping[str, Any], prefix: str, form: str) -> str | None:
        if form == "raw":
            for name in ("schema", "schema_file"):
                if name in table:
                    self._problem(prefix + name, "is not for raw, whose values are bytes: leave it out, or set format")
            return None
        schema = self._text(table, "schema", prefix)
        if schema is None:
            example = '"id BIGINT NOT NULL, name STRING"' if form == "json" else "or schema_file, the Avro schema"
            self._problem(prefix + "schema", f"is missing: {form} needs it, {example}")
        if schema is not None and form == "avro":
            try:
                parse_schema(schema)
            except BadAvroSchema as error:
                self._problem(prefix + "schema", str(error))
        return schema

    def _text(self, table: Mapping[str, Any], name: str, prefix: str) -> str | None:
        """A text that can also be in a file."""
        file_name = f"{name}_file"
        if name in table and file_name in table:
            self._problem(prefix + file_name, f"contradicts {prefix}{name}: leave one of them out")
        if file_name not in table:
            text: str | None = table.get(name)
            return text
        place: Path = self.path.parent / table[file_name]
        try:
            return place.read_text()
        except (OSError, UnicodeDecodeError) as error:
            self._problem(prefix + file_name, f"{place} cannot be read: {getattr(error, 'strerror', error)}")
            return None

    def _trigger(self, text: str) -> str:
        if text != AVAILABLE_NOW and _PAUSE.fullmatch(text) is None:
            allowed = f"{AVAILABLE_NOW}, or a pause such as '10 seconds'"
            self._problem("trigger", f"{text!r} is not allowed; allowed: {allowed}")
        return text

    def _location(self, location: str) -> str:
        """A relative path is relative to the file."""
        local = local_path(location)
        return location if local is None else str((self.path.parent / local).absolute())

    def _settings(self, table: Mapping[str, Any], name: str, prefix: str) -> dict[str, str]:
        return {
            one: self._filled(f"{prefix}{name}.{one}", str(value).lower() if isinstance(value, bool) else str(value))
            for one, value in flat(table.get(name, {})).items()
        }

    def _filled(self, place: str, text: str) -> str:
        """With ${NAME} replaced from the environment: passwords need not be in the file."""
        for name in _VARIABLE.findall(text):
            if name not in self.environ:
                self._problem(place, f"the environment has no variable {name}")
        return _VARIABLE.sub(lambda found: self.environ.get(found[1], ""), text)

    # -- the whole

    def _check_function(self, pipeline: Pipeline) -> None:
        if pipeline.function is None:
            return
        views = [source.view for source in pipeline.sources]
        try:
            signature = inspect.signature(pipeline.function)
            signature.bind(*([None] if len(views) == 1 else []), **({} if len(views) == 1 else dict.fromkeys(views)))
        except TypeError:
            expected = "df" if len(views) == 1 else ", ".join(views)
            self._problem(FUNCTION, f"takes other parameters than the sources give; expected is {FUNCTION}({expected})")

    def _check_topics(self, pipeline: Pipeline) -> None:
        """A pipeline that reads what it writes never ends."""
        written = {"dead_letter_topic": pipeline.dead_letter_topic}
        if isinstance(pipeline.sink, TopicSink):
            written["sink.topic"] = pipeline.sink.topic
        for place, topic in written.items():
            if topic is not None and any(source.reads(topic) for source in pipeline.sources):
                self._problem(place, f"{topic!r} is also read: the pipeline would read what it writes")
        if len(set(written.values())) < len(written):
            self._problem("dead_letter_topic", "is the topic that rows are written to: give another one")

    def _check_options(self, pipeline: Pipeline) -> None:
        """By the source and the sink themselves."""
        from semel.spark import sink_options, source_options

        address = pipeline.address or "127.0.0.1:9092"
        if pipeline.kafka.keys() & {"bootstrap.servers"}:
            self._problem("kafka.bootstrap.servers", "is what address says: leave it out")
        for number, source in enumerate(pipeline.sources, 1):
            place = "source" if len(pipeline.sources) == 1 else f"source[{number}]"
            self._check_reserved(source.options, _SAID_BY_SOURCE, place)
            try:
                source_options.stream_options(source.read_options(pipeline, address))
            except BadSetting as error:
                self._problem(f"{place}.options", str(error))
        if isinstance(pipeline.sink, TableSink):
            try:
                database_for(pipeline.sink.url, None, None)
            except BadSetting as error:
                self._problem("sink", str(error))
        else:
            self._check_reserved(pipeline.sink.options, _SAID_BY_SINK, "sink")
            try:
                sink_options.stream_options(pipeline.sink.write_options(pipeline, address))
            except BadSetting as error:
                self._problem("sink.options", str(error))

    def _check_reserved(self, options: Mapping[str, str], said: Mapping[str, str], place: str) -> None:
        for name in options:
            if name.lower() in said:
                self._problem(f"{place}.options.{name}", f"is what {said[name.lower()]} says: leave it out")

    def _problem(self, place: str, text: str) -> None:
        self.problems.append(f"{place}: {text}")

    def _raise(self) -> None:
        if self.problems:
            raise PipelineRefused(*(f"{self.path}: {problem}" for problem in self.problems))


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)

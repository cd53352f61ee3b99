"""Every key of a pipeline file, declared once: name, kind, default, one sentence. Files are checked against it.

Wrong keys and kinds are all told at once, each with its place in the file and what is allowed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from semel.config.errors import UnknownSetting


class Kind(StrEnum):
    """What a value may be, as it is told."""

    TEXT = "a text"
    TEXTS = "a text or a list of texts"
    NUMBER = "a whole number"
    BOOLEAN = "true or false"
    OFFSETS = 'a text, or offsets by topic and partition such as {orders = {"0" = 23}}'
    SETTINGS = "a table of names with texts, numbers, true or false"
    TABLE = "a table"
    TABLES = "a table, or several ([[source]])"


@dataclass(frozen=True)
class Key:
    name: str
    kind: Kind
    sentence: str
    default: str = ""
    choices: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    """Of a table."""


FORMATS = ("json", "avro", "raw")

_WATERMARK = (
    Key("column", Kind.TEXT, "the column that holds the time of the event"),
    Key("delay", Kind.TEXT, "how late an event may be, such as `10 minutes`; what is later is left out"),
)

SOURCE = (
    Key("topics", Kind.TEXTS, "what is read"),
    Key("pattern", Kind.TEXT, "a regular expression for the names of topics, instead of `topics`"),
    Key("format", Kind.TEXT, "how values are read", "raw", choices=FORMATS),
    Key("schema", Kind.TEXT, "of json: columns as in SQL (`id BIGINT NOT NULL, name STRING`); of avro: the schema"),
    Key("schema_file", Kind.TEXT, "a file that holds it, instead of `schema`"),
    Key("view", Kind.TEXT, "its name in the SQL", "the topic's name; `input` works too if there is one source"),
    Key("starting", Kind.OFFSETS, "where the first run begins: `earliest`, `latest` or offsets", "earliest"),
    Key("watermark", Kind.TABLE, "for windows and joins over time", keys=_WATERMARK),
    Key("options", Kind.SETTINGS, 'any other option of the source, such as `maxOffsetsPerTrigger`; see "Options"'),
)

SINK = (
    Key("topic", Kind.TEXT, "what is written to"),
    Key("table", Kind.TEXT, "a table of a database, instead of `topic`"),
    Key("url", Kind.TEXT, "of a table: the database, `sqlite:///file.db` or `postgresql://user@host/name`"),
    Key("keys", Kind.TEXTS, "of a table: columns by which a row replaces the one that is there", "rows are added"),
    Key("create", Kind.BOOLEAN, "of a table: whether to make it if it is not there", "false"),
    Key("format", Kind.TEXT, "of a topic: how values are written", "raw if all sources are, else json", FORMATS),
    Key("key", Kind.TEXT, "of a topic, json or avro: the column that becomes the record's key", "no key"),
    Key("schema", Kind.TEXT, "of a topic, avro: the schema; its fields are found by name among the columns"),
    Key("schema_file", Kind.TEXT, "a file that holds it, instead of `schema`"),
    Key("options", Kind.SETTINGS, 'any other option of the sink, such as `transactionalIdPrefix`; see "Options"'),
)

BROKER = (
    Key("port", Kind.NUMBER, "of the embedded broker", "a free one"),
    Key("data", Kind.TEXT, "directory of the embedded broker", "<checkpoint>.broker"),
)

ROOT = (
    Key("name", Kind.TEXT, "of the pipeline: of its group, its query and its application", "the file's name"),
    Key("address", Kind.TEXT, "host:port of the cluster, several with commas", "an embedded broker"),
    Key("checkpoint", Kind.TEXT, "where it keeps how far it has come: a directory or a URI", "<name>.checkpoint"),
    Key("trigger", Kind.TEXT, "`available-now` (what is there, then end) or a pause such as `10 seconds`", "0 seconds"),
    Key("sql", Kind.TEXT, "the query that makes output rows of input rows", "all rows as they are"),
    Key("sql_file", Kind.TEXT, "a file that holds it, instead of `sql`"),
    Key("dead_letter_topic", Kind.TEXT, "where records go that cannot be read or written", "they stop the pipeline"),
    Key("create_topics", Kind.BOOLEAN, "whether topics that do not exist are made", "only in the embedded broker"),
    Key("source", Kind.TABLES, "what is read", keys=SOURCE),
    Key("sink", Kind.TABLE, "what is written", keys=SINK),
    Key("kafka", Kind.SETTINGS, 'settings of the client, such as `"security.protocol"`, for source and sink'),
    Key("spark", Kind.SETTINGS, 'settings of Spark, such as `master` or `"spark.executor.memory"`'),
    Key("broker", Kind.TABLE, "the embedded broker", keys=BROKER),
)


def problems_in(table: Mapping[str, Any], keys: tuple[Key, ...] = ROOT, prefix: str = "") -> Iterator[str]:
    """What is wrong with names and kinds, one sentence each."""
    known = {key.name: key for key in keys}
    for name, value in table.items():
        key = known.get(name)
        if key is None:
            unknown = UnknownSetting(prefix + name, [prefix + one for one in known], kind_of_name="key")
            allowed = "" if unknown.nearest is not None else f"; allowed: {', '.join(known)}"
            yield f"{unknown}{allowed}"
        else:
            yield from _problems_of(key, value, prefix + name)


def _problems_of(key: Key, value: Any, place: str) -> Iterator[str]:
    if key.kind is Kind.TABLES and isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        for number, one in enumerate(value, 1):
            yield from problems_in(one, key.keys, f"{place}[{number}].")
    elif key.kind in (Kind.TABLE, Kind.TABLES) and isinstance(value, dict):
        yield from problems_in(value, key.keys, f"{place}.")
    elif not _fits(key.kind, value):
        yield f"{place}: {_shown(value)} is not allowed; allowed: {key.kind}"
    elif key.choices and value not in key.choices:
        yield f"{place}: {_shown(value)} is not allowed; allowed: {', '.join(key.choices)}"


def _fits(kind: Kind, value: Any) -> bool:
    if kind is Kind.TEXT:
        return isinstance(value, str) and bool(value.strip())
    if kind is Kind.TEXTS:
        texts = value if isinstance(value, list) else [value]
        return bool(texts) and all(_fits(Kind.TEXT, one) for one in texts)
    if kind is Kind.NUMBER:
        return type(value) is int
    if kind is Kind.BOOLEAN:
        return isinstance(value, bool)
    if kind is Kind.SETTINGS:
        return isinstance(value, dict) and all(isinstance(one, str | int | float) for one in flat(value).values())
    if kind is Kind.OFFSETS:
        return _fits(Kind.TEXT, value) or (isinstance(value, dict) and bool(value) and _are_offsets(value))
    return False


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of settings with dotted names, whether these were written as dotted keys, quoted keys or tables."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= {f"{name}.{rest}": inner for rest, inner in flat(value).items()}
        else:
            found[name] = value
    return found


def _are_offsets(topics: Mapping[str, Any]) -> bool:
    return all(
        isinstance(partitions, dict)
        and all(number.isdecimal() and type(offset) is int for number, offset in partitions.items())
        for partitions in topics.values()
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."

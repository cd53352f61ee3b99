"""PostgreSQL and SQLite behind one face: one transaction, the table of batches, and rows into a table.

The lock on a query's entry in the table of batches makes its writers take turns: a second driver waits for the first
one's commit, and then finds the batch there.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

from semel.client.errors import BadSetting

_NONE_YET = -1
_SQLITE_WAIT_S = 60.0


class Column(NamedTuple):
    name: str
    kind: Any
    """Spark's type."""


@dataclass(frozen=True)
class Database:
    """How to reach it. Can be pickled if `connect` can."""

    connect: Callable[[], Any]
    dialect: str

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Commits at the end of the block. If the answer to that is lost, the next attempt finds out how it ended."""
        connection = self.connect()
        session = _SESSIONS[self.dialect](connection)
        try:
            session.begin()
            yield session
            session.commit()
        except BaseException:
            session.give_up()
            raise
        finally:
            connection.close()


@dataclass(frozen=True)
class _Postgres:
    url: str = field(repr=False)  # it may hold a password

    def __call__(self) -> Any:
        try:
            psycopg = import_module("psycopg")
        except ImportError as error:  # it is not there, or the library of PostgreSQL that it needs is not
            raise BadSetting(f"PostgreSQL needs psycopg: {error}; pip install 'semel[postgres]'") from error
        return psycopg.connect(self.url)


@dataclass(frozen=True)
class _Sqlite:
    path: str

    def __call__(self) -> Any:
        import sqlite3

        return sqlite3.connect(self.path, timeout=_SQLITE_WAIT_S, isolation_level=None)


def database_for(url: str, connect: Callable[[], Any] | None, dialect: str | None) -> Database:
    if connect is not None:
        if dialect not in _SESSIONS:
            raise BadSetting(f"dialect: {dialect!r} is not allowed; allowed: {', '.join(_SESSIONS)}")
        return Database(connect, dialect)
    scheme, _, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        return Database(_Postgres(url), "postgresql")
    if scheme == "sqlite" and rest.startswith("/"):
        return Database(_Sqlite(rest[1:]), "sqlite")
    raise BadSetting(f"url: {url!r} is not allowed; allowed: postgresql://... and sqlite:///path")


class Session(ABC):
    """One transaction. Names of tables and columns are quoted; a dot separates a schema from a table."""

    placeholder = "%s"
    lock_clause = ""
    types: ClassVar[dict[str, str]] = {}
    fallback_type = "text"

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor = connection.cursor()

    @abstractmethod
    def begin(self) -> None: ...

    def commit(self) -> None:
        self._connection.commit()

    def give_up(self) -> None:
        try:
            self._connection.rollback()
        except Exception:
            pass  # the connection is lost, or about to be closed: the database rolls back by itself

    # -- which batch was written last

    def create_batches(self, table: str) -> None:
        self._create_if_missing(
            table, "query text primary key, batch_id bigint not null, digest text not null, written_at text"
        )

    def last_batch(self, table: str, query: str) -> tuple[int, str] | None:
        """As it is committed, for showing: nobody is waited for, and nothing is changed."""
        self._cursor.execute(f"select batch_id, digest from {quoted(table)} where query = {self.placeholder}", (query,))
        found = self._cursor.fetchone()
        return None if found is None or found[0] == _NONE_YET else (int(found[0]), str(found[1]))

    def lock_batch(self, table: str, query: str) -> tuple[int, str]:
        """The batch that was written last, and its digest. Nobody else can do the same until this transaction ends."""
        mark = self.placeholder
        self._cursor.execute(
            f"insert into {quoted(table)} (query, batch_id, digest) values ({mark}, {_NONE_YET}, '') "
            "on conflict (query) do nothing",
            (query,),
        )
        self._cursor.execute(
            f"select batch_id, digest from {quoted(table)} where query = {mark}{self.lock_clause}", (query,)
        )
        batch_id, digest = self._cursor.fetchone()
        return int(batch_id), str(digest)

    def set_batch(self, table: str, query: str, batch_id: int, digest: str) -> None:
        mark = self.placeholder
        self._cursor.execute(
            f"update {quoted(table)} set batch_id = {mark}, digest = {mark}, written_at = current_timestamp "
            f"where query = {mark}",
            (batch_id, digest, query),
        )

    # -- the table

    def create_table(self, table: str, columns: Sequence[Column], keys: Sequence[str]) -> None:
        parts = [f"{quoted_name(column.name)} {self.type_of(column.kind)}" for column in columns]
        if keys:
            parts.append(f"primary key ({_names(keys)})")
        self._create_if_missing(table, ", ".join(parts))

    def _create_if_missing(self, table: str, parts: str) -> None:
        self._cursor.execute(f"create table if not exists {quoted(table)} ({parts})")

    def type_of(self, kind: Any) -> str:
        name = type(kind).__name__
        if name == "DecimalType":
            return f"numeric({kind.precision}, {kind.scale})"
        return self.types.get(name, self.fallback_type)

    def write(
        self, table: str, columns: Sequence[Column], keys: Sequence[str], chunks: Iterator[list[tuple[Any, ...]]]
    ) -> None:
        """Of several rows with the same keys the last one stays."""
        names = [column.name for column in columns]
        statement = (
            f"insert into {quoted(table)} ({_names(names)}) values ({', '.join([self.placeholder] * len(names))})"
        )
        if keys:
            statement += f" on conflict ({_names(keys)}) {_replacement(names, keys)}"
        for chunk in chunks:
            self._cursor.executemany(statement, chunk)

    # -- values

    def row(self, columns: Sequence[Column], values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self.value(column.kind, value) for column, value in zip(columns, values, strict=True))

    def value(self, kind: Any, value: Any) -> Any:
        """A value as Spark gives it, as the database takes it; what has parts becomes JSON."""
        if isinstance(value, datetime):
            # Spark's timestamps come in the driver's time zone, without saying so.
            return value if type(kind).__name__ == "TimestampNTZType" else value.astimezone(UTC)
        if isinstance(value, bytearray):
            return bytes(value)
        if isinstance(value, list | tuple | dict):
            return json.dumps(_plain(value), separators=(",", ":"))
        return value


class PostgresSession(Session):
    lock_clause = " for update"
    types: ClassVar[dict[str, str]] = {
        "BooleanType": "boolean",
        "ByteType": "smallint",
        "ShortType": "smallint",
        "IntegerType": "integer",
        "LongType": "bigint",
        "FloatType": "real",
        "DoubleType": "double precision",
        "BinaryType": "bytea",
        "DateType": "date",
        "TimestampType": "timestamptz",
        "TimestampNTZType": "timestamp",
        "ArrayType": "jsonb",
        "MapType": "jsonb",
        "StructType": "jsonb",
    }

    def begin(self) -> None:
        """The driver begins by itself; but not on a connection that was made to commit every statement alone."""
        if getattr(self._connection, "autocommit", False):
            self._connection.autocommit = False

    def _create_if_missing(self, table: str, parts: str) -> None:
        self._cursor.execute("select to_regclass(%s)::text", (quoted(table),))
        if self._cursor.fetchone()[0] is None:
            # "if not exists" does not keep two sessions from making the same table at once; this lock does. It is held
            # to the end of the transaction, so those who find the table do without it.
            self._cursor.execute("select pg_advisory_xact_lock(hashtext(%s))", (f"semel {table}",))
            super()._create_if_missing(table, parts)

    def write(
        self, table: str, columns: Sequence[Column], keys: Sequence[str], chunks: Iterator[list[tuple[Any, ...]]]
    ) -> None:
        copy = getattr(self._cursor, "copy", None)  # of psycopg: several times faster than single statements
        if copy is None:
            super().write(table, columns, keys, chunks)
            return
        names = [column.name for column in columns]
        target = "semel_rows" if keys else quoted(table)
        if keys:
            # A row may come twice, but a statement may replace a row once: so the last of each is chosen first.
            self._cursor.execute(
                f"create temporary table semel_rows on commit drop as select {_names(names)} from {quoted(table)} "
                "with no data"
            )
            self._cursor.execute("alter table semel_rows add column semel_row bigserial")
        with copy(f"copy {target} ({_names(names)}) from stdin") as stream:
            for chunk in chunks:
                for row in chunk:
                    stream.write_row(row)
        if keys:
            self._cursor.execute(
                f"insert into {quoted(table)} ({_names(names)}) select distinct on ({_names(keys)}) {_names(names)} "
                f"from semel_rows order by {_names(keys)}, semel_row desc "
                f"on conflict ({_names(keys)}) {_replacement(names, keys)}"
            )


class SqliteSession(Session):
    placeholder = "?"
    types: ClassVar[dict[str, str]] = {
        "BooleanType": "integer",
        "ByteType": "integer",
        "ShortType": "integer",
        "IntegerType": "integer",
        "LongType": "integer",
        "FloatType": "real",
        "DoubleType": "real",
        "BinaryType": "blob",
    }

    def begin(self) -> None:
        # At once for writing: one that began with reading could find, when it wants to write, that it is too late.
        self._cursor.execute("begin immediate")

    def type_of(self, kind: Any) -> str:
        return "text" if type(kind).__name__ == "DecimalType" else super().type_of(kind)

    def value(self, kind: Any, value: Any) -> Any:
        value = super().value(kind, value)
        if isinstance(value, datetime):
            return value.isoformat(" ")
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, Decimal | timedelta):
            return str(value)
        return value


_SESSIONS: dict[str, type[Session]] = {"postgresql": PostgresSession, "sqlite": SqliteSession}


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quoted(table: str) -> str:
    return ".".join(quoted_name(part) for part in table.split("."))


def _names(names: Sequence[str]) -> str:
    return ", ".join(quoted_name(name) for name in names)


def _replacement(names: Sequence[str], keys: Sequence[str]) -> str:
    others = [name for name in names if name not in keys]
    if not others:
        return "do nothing"
    return "do update set " + ", ".join(f"{quoted_name(name)} = excluded.{quoted_name(name)}" for name in others)


def _plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return {name: _plain(part) for name, part in value.asDict().items()}
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | timedelta) else value

"""The little of a DB-API connection that the writer of tables uses, on libpq by ctypes: PostgreSQL without a package.

With `copy` it has psycopg's way to COPY too. Values go as texts, and come back as texts.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import Any

_OK, _ROWS, _COPY_IN = 1, 2, 4


def load_libpq() -> Any:
    """None if it is not installed."""
    name = ctypes.util.find_library("pq")
    if name is None:
        return None
    pq = ctypes.CDLL(name)
    for function in ("PQconnectdb", "PQexec", "PQexecParams", "PQgetResult"):
        getattr(pq, function).restype = ctypes.c_void_p
    for function in ("PQerrorMessage", "PQresultErrorMessage", "PQgetvalue"):
        getattr(pq, function).restype = ctypes.c_char_p
    return pq


class PostgresError(Exception):
    pass


class LibpqConnection:
    """A transaction is begun with the first statement, as by psycopg."""

    def __init__(self, conninfo: str, *, with_copy: bool) -> None:
        self.pq = load_libpq()
        self._handle = ctypes.c_void_p(self.pq.PQconnectdb(conninfo.encode()))
        self._with_copy = with_copy
        self._is_begun = False
        if self.pq.PQstatus(self._handle) != 0:
            raise PostgresError(self.pq.PQerrorMessage(self._handle).decode())

    def cursor(self) -> Cursor:
        return CopyingCursor(self) if self._with_copy else Cursor(self)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if not self._is_begun:
            self._is_begun = True
            self._run("begin", ())
        return self._run(statement, values)

    def _run(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        for number in range(len(values)):
            statement = statement.replace("%s", f"${number + 1}", 1)
        texts = [None if value is None else as_text(value).encode() for value in values]
        result = ctypes.c_void_p(
            self.pq.PQexecParams(
                self._handle,
                statement.encode(),
                len(texts),
                None,
                (ctypes.c_char_p * len(texts))(*texts),
                None,
                None,
                0,
            )
        )
        try:
            if self.pq.PQresultStatus(result) not in (_OK, _ROWS, _COPY_IN):
                raise PostgresError(self.pq.PQerrorMessage(self._handle).decode())
            return [
                tuple(
                    None
                    if self.pq.PQgetisnull(result, row, column)
                    else self.pq.PQgetvalue(result, row, column).decode()
                    for column in range(self.pq.PQnfields(result))
                )
                for row in range(self.pq.PQntuples(result))
            ]
        finally:
            self.pq.PQclear(result)

    def copy_rows(self, statement: str) -> Any:
        self.execute(statement)
        return self._handle

    def commit(self) -> None:
        if self._is_begun:
            self._run("commit", ())
        self._is_begun = False

    def rollback(self) -> None:
        if self._is_begun:
            self._run("rollback", ())
        self._is_begun = False

    def close(self) -> None:
        self.pq.PQfinish(self._handle)


class Cursor:
    def __init__(self, connection: LibpqConnection) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None:
        self._rows = self._connection.execute(statement, values)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            self.execute(statement, row)

    def fetchone(self) -> tuple[Any, ...]:
        return self._rows.pop(0)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows


class CopyingCursor(Cursor):
    @contextmanager
    def copy(self, statement: str) -> Iterator[_Copying]:
        pq, handle = self._connection.pq, self._connection.copy_rows(statement)
        yield _Copying(pq, handle)
        pq.PQputCopyEnd(handle, None)
        while result := pq.PQgetResult(handle):
            held = ctypes.c_void_p(result)
            status, text = pq.PQresultStatus(held), pq.PQresultErrorMessage(held)
            pq.PQclear(held)
            if status != _OK:
                raise PostgresError(text.decode())


class _Copying:
    def __init__(self, pq: Any, handle: Any) -> None:
        self._pq = pq
        self._handle = handle

    def write_row(self, row: Sequence[Any]) -> None:
        line = "\t".join("\\N" if value is None else _escaped(as_text(value)) for value in row).encode() + b"\n"
        if self._pq.PQputCopyData(self._handle, line, len(line)) != 1:
            raise PostgresError(self._pq.PQerrorMessage(self._handle).decode())


def as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")

"""What brokers and clusters for tests have in common: `with` and `async with`, a directory, settings as arguments."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from semel.testing.exactly_once import assert_exactly_once


def kafka_settings(settings: Mapping[str, object] | None, named: Mapping[str, Any]) -> dict[str, str]:
    """Texts by Kafka's names; those of arguments have underscores where these have dots."""
    given = {**(settings or {}), **{name.replace("_", "."): value for name, value in named.items()}}
    return {name: _text(value) for name, value in given.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(_text(entry) for entry in value)
    return str(value)


class Living(AbstractContextManager["Living"], ABC):
    """`start` and `close` end a test's waiting for a node; `async with` runs them beside the event loop."""

    def __init__(self, directory: str | Path | None) -> None:
        self._given = None if directory is None else Path(directory).absolute()
        self._own: Path | None = None

    @property
    def directory(self) -> Path:
        """Where the data and the logs of nodes are. One that was not given is there from start to end."""
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = Path(tempfile.mkdtemp(prefix="semel-testing-"))
        return self._own

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str: ...

    def assert_exactly_once(self, input_topic: str, output_topic: str, **options: Any) -> None:
        """`semel.testing.assert_exactly_once` for two topics here."""
        assert_exactly_once(input_topic, output_topic, bootstrap_servers=self.bootstrap_servers, **options)

    @abstractmethod
    def mend(self) -> None:
        """Undoes what a test has done to it: what is paused, cut off, slow or not running is well again."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    def close(self) -> None:
        """No process is left, and no directory that was not given."""
        try:
            self._close()
        finally:
            if self._own is not None:
                shutil.rmtree(self._own, ignore_errors=True)
                self._own = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

"""Runs what is written for asyncio to its end, for callers that wait: Spark's workers, notebooks, the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from semel.host.api import Host
from semel.host.real import real_host

T = TypeVar("T")


def run_with_host(work: Callable[[Host], Awaitable[T]]) -> T:
    """The result of `work`, which gets the real host. A notebook runs a loop in this thread: then another is used."""

    async def with_host() -> T:
        host = real_host()
        try:
            return await work(host)
        finally:
            host.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(with_host())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(with_host())).result()

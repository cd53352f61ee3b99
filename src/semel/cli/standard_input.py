"""Lines of standard input for a program on an event loop: what is there is taken at once, and Ctrl-C is not held up.

A thread that blocks in `read` could not be stopped; so the loop watches pipes and terminals, and files are just read.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

_CHUNK_BYTES = 1 << 16


async def lines_of(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Lines without their ends, as many at a time as have come. The last one need not end."""
    rest = b""
    async for chunk in _chunks(descriptor):
        *whole, rest = (rest + chunk).split(b"\n")
        if whole:
            yield whole
    if rest:
        yield [rest]


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    while True:
        try:
            chunk = await _next_chunk(descriptor)
        except PermissionError:  # a regular file, or /dev/null: always readable, and nothing to watch
            chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def _next_chunk(descriptor: int) -> bytes:
    """Reads in the callback itself: only there is it sure that a read does not block. A flag that is looked at later
    may have been raised twice for the same bytes."""
    loop = asyncio.get_running_loop()
    chunk: asyncio.Future[bytes] = loop.create_future()

    def readable() -> None:
        if not chunk.done():
            chunk.set_result(os.read(descriptor, _CHUNK_BYTES))

    loop.add_reader(descriptor, readable)
    try:
        return await chunk
    finally:
        loop.remove_reader(descriptor)

"""Standard input on an event loop: lines as they come, and never a read that blocks the loop."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from semel.cli.standard_input import lines_of

TIMEOUT_S = 20.0


async def all_of(descriptor: int) -> list[bytes]:
    return [line async for lines in lines_of(descriptor) for line in lines]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        (b"a\r\n", [b"a\r"]),
        (b"x" * 200_000 + b"\ny\n", [b"x" * 200_000, b"y"]),
    ],
    ids=["nothing", "no end", "one", "an empty one", "only an empty one", "carriage return", "larger than a chunk"],
)
async def test_files_are_read_line_by_line(tmp_path: Path, text: bytes, lines: list[bytes]) -> None:
    (tmp_path / "file").write_bytes(text)
    with (tmp_path / "file").open("rb") as file:
        assert await all_of(file.fileno()) == lines


async def test_nothing_comes_of_the_null_device() -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        assert await all_of(descriptor) == []
    finally:
        os.close(descriptor)


async def test_lines_of_a_pipe_come_when_they_are_written_and_the_loop_goes_on_meanwhile() -> None:
    reading, writing = os.pipe()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            lines = lines_of(reading)
            for line in (b"first", b"second"):
                os.write(writing, line + b"\n")
                assert await anext(lines) == [line]
                # While nothing is there to read, others must run: a read that blocks would hold them up for ever.
                waiting = asyncio.ensure_future(anext(lines))
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not waiting.done()
                os.write(writing, b"more\n")
                assert await waiting == [b"more"]
            os.close(writing)
            writing = -1
            assert [line async for line in lines] == []
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


async def test_half_a_line_waits_for_its_other_half() -> None:
    reading, writing = os.pipe()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            lines = lines_of(reading)
            os.write(writing, b"one\ntw")
            assert await anext(lines) == [b"one"]
            os.write(writing, b"o\n")
            assert await anext(lines) == [b"two"]
            await lines.aclose()
    finally:
        os.close(reading)
        os.close(writing)


async def test_who_stops_waiting_leaves_nothing_behind() -> None:
    reading, writing = os.pipe()
    try:
        waiting = asyncio.ensure_future(anext(lines_of(reading)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert asyncio.get_running_loop().remove_reader(reading) is False
    finally:
        os.close(reading)
        os.close(writing)

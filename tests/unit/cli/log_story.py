"""A small story of transactions for docs/log-files.md: told by our client on our broker, in the simulated world, so
that ids and times are the same in every run. As a program it writes the answers of the commands into the page anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "broker"))
sys.path.insert(0, str(Path(__file__).parents[1] / "log"))

from broker_harness import BROKER, PORT, Node
from inspection_samples import directory_of, flip

from semel.cli.main import main
from semel.client.errors import SemelError
from semel.client.producer.producer import Producer

PAGE = Path(__file__).parents[3] / "docs/log-files.md"
TRANSACTIONAL_ID = "till"
TOPIC = "payments"
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
_COMMAND = "$ semel "


async def producer_of(node: Node, name: str) -> Producer:
    producer = Producer(
        host=node.world.host(name), bootstrap_servers=f"{BROKER}:{PORT}", transactional_id=TRANSACTIONAL_ID
    )
    await producer.start()
    await producer.init_transactions()
    return producer


async def send(producer: Producer, key: str, value: str) -> None:
    await producer.send_and_wait(TOPIC, value.encode(), key=key.encode())


async def story(node: Node) -> None:
    """One till commits, changes its mind, and is replaced while it is still at work."""
    client = await node.client()
    assert (await client.create_topic(TOPIC, 1)).error_code == 0
    till = await producer_of(node, "till")

    await till.begin()
    await send(till, "alice", "10.00")
    await send(till, "bob", "25.00")
    await till.commit()

    await asyncio.sleep(2)
    await till.begin()
    await send(till, "carol", "99.00")
    await till.abort()

    await asyncio.sleep(2)
    await till.begin()
    await send(till, "dave", "5.00")
    await asyncio.sleep(2)
    replacement = await producer_of(node, "replacement")
    refusal = ""
    try:
        await send(till, "erin", "7.00")
        await till.commit()
    except SemelError as error:
        refusal = str(error)
    assert "a newer instance" in refusal, "a till that was replaced has committed"
    await asyncio.sleep(2)
    await replacement.begin()
    await send(replacement, "dave", "5.00")
    await replacement.commit()

    await asyncio.sleep(2)
    await replacement.begin()
    await send(replacement, "frank", "1.00")
    node.world.kill("till")


def made(directory: Path) -> None:
    """The data directory of the story, `data`, and a copy of it with a bit flipped, `damaged`."""
    data = directory_of(story, directory / "data")
    damaged = Path(shutil.copytree(data, directory / "damaged"))
    flip(damaged / "payments-0/00000000000000000000.txnindex", 17)


def refreshed(page: str, directory: Path) -> str:
    """The page with the answers that its commands give now. Commands run in `directory`."""
    return _BLOCK.sub(lambda block: f"```console\n{_answered(block[1], directory)}```", page)


def commands_of(page: str) -> list[str]:
    return [line for block in _BLOCK.finditer(page) for line in block[1].splitlines() if line.startswith("$")]


def _answered(block: str, directory: Path) -> str:
    shown = ""
    for line in block.splitlines():
        if line.startswith(_COMMAND):
            output = io.StringIO()
            before = os.getcwd()
            os.chdir(directory)
            try:
                with contextlib.redirect_stdout(output):
                    main(shlex.split(line[len(_COMMAND) :]))
            finally:
                os.chdir(before)
            shown += f"{line}\n{output.getvalue()}"
    return shown


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        made(Path(name))
        PAGE.write_text(refreshed(PAGE.read_text(), Path(name)))

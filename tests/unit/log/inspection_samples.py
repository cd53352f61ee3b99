"""Data directories to look into: made by a whole broker in the simulated world, then put on the real disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "broker"))

from broker_harness import BROKER, NO_PAUSE, NOW_MS, PORT, ROOT, Node, batch_of, produce_request
from transaction_harness import V1, V2, started, with_transactions

from semel.log.inspection.directory_check import DirectoryCheck, partition_directories
from semel.log.inspection.files import RealFiles
from semel.log.inspection.findings import Finding, Findings, Kind
from semel.sim.disk import SimDisk
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run

SETTINGS = {
    "advertised.listeners": f"PLAINTEXT://{BROKER}:{PORT}",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
SMALL = {"segment.bytes": "1500", "index.interval.bytes": "100"}


def export(disk: SimDisk, source: str, target: Path) -> None:
    """Copies a directory of the simulated disk to the real one."""
    target.mkdir(parents=True, exist_ok=True)
    for name in disk.list_dir(source):
        path = f"{source}/{name}"
        if disk.is_dir(path):
            export(disk, path, target / name)
        else:
            (target / name).write_bytes(disk.read_file(path))


def directory_of(
    scenario: Callable[[Node], Coroutine[Any, Any, None]], target: Path, *, stops: bool = True, seed: int = 1
) -> Path:
    """What a broker leaves behind after the scenario: stopped cleanly, or killed."""
    world = SimWorld(SimLoop(end_s=3600 * 24 * 365), seed, latency_ms=NO_PAUSE, flush_latency_ms=NO_PAUSE)
    node = Node(world, SETTINGS)

    async def whole() -> None:
        await node.start()
        await scenario(node)
        if stops:
            await node.stop()
        else:
            world.kill(BROKER)

    run(whole(), loop=world.loop)
    export(node.disk, ROOT, target)
    return target


async def busy_day(node: Node) -> None:
    """Producers of every kind in topic `out`: plain, idempotent, and transactions that end well, badly and not at all;
    enough of them for several segments."""
    client = await with_transactions(node, configs=SMALL)
    first = await started(client, V1, "first")
    second = await started(client, V2, "second")
    for number in range(8):
        value = b"%04d" % number
        for sequence in range(2):
            at_ms = NOW_MS + number * 1000 + sequence
            batch = batch_of(value, producer_id=500, sequence=number * 2 + sequence, timestamp_ms=at_ms)
            await client.ask(produce_request("out", batch), 9)
        await client.ask(produce_request("out", batch_of(value * 20)), 9)
        assert await first.add() == 0
        assert await first.write(value) == 0
        await second.transaction(value, value, commit=number % 3 != 0)
        assert await first.end(commit=number % 2 == 0) == 0
    assert await second.write(b"left open") == 0


def found_in(root: Path, **options: Any) -> Findings:
    """What a check of the whole data directory finds."""
    findings, files = Findings(), RealFiles()
    check = DirectoryCheck(files, str(root), findings, **options)
    check.root_files()
    for directory in partition_directories(files, str(root)):
        check.partition(directory)
    return findings


def wrong_in(root: Path, **options: Any) -> list[Finding]:
    return [finding for finding in found_in(root, **options) if finding.is_wrong]


def kinds_in(root: Path, **options: Any) -> set[Kind]:
    return {finding.kind for finding in wrong_in(root, **options)}


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path, by: int = 1) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)

"""The broker that a check attacks: a process of our own, quick settings, the same port and directory at every start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from semel.local.node_process import SERVE, NodeDied, NodeProcess, until_ready
from semel.local.ports import HOST, HeldPorts

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
"""A short run is not to be spent on waiting."""


class LocalNode:
    """`command` starts a node; its options are added."""

    def __init__(self, name: str, root: Path, *, command: Sequence[str] = SERVE) -> None:
        self.name = name
        self._ports = HeldPorts()
        (self.port,) = self._ports.take(1)
        settings = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
        options = ["--data", str(root / "data"), "--port", str(self.port), *settings]
        self.process = NodeProcess(name, [*command, *options], root / "node.log")

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    @property
    def is_running(self) -> bool:
        return self.process.is_running

    async def start(self) -> None:
        """One that runs is left alone. Raises NodeDied, also for one that has ended although nobody asked it to."""
        if self.is_running:
            return
        code = self.process.ended_with
        if code is not None:
            raise NodeDied(f"{self.name} ended with code {code}:\n{self.process.last_words()}")
        self.process.spawn()
        await until_ready([self.process])

    async def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def close(self) -> None:
        """No process is left, and its port is anybody's."""
        self.process.kill()
        self._ports.close()


__all__ = ["SERVE", "LocalNode", "NodeDied"]

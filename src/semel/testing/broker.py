"""One real node for a test: ready in a quarter of a second, gone when the test ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semel.local.cuts import ALL_CLIENTS, Cuts
from semel.local.node_process import SERVE, NodeProcess, wait_until_ready
from semel.local.ports import HOST, HeldPorts
from semel.testing.living import Living, kafka_settings

_NODE_ID = 1
_BOTH_WAYS = [(ALL_CLIENTS, _NODE_ID), (_NODE_ID, ALL_CLIENTS)]
_QUICK = {"group.initial.rebalance.delay.ms": "0"}
"""A test is not to be spent on waiting."""


class Broker(Living):
    """A node alone, a cluster of its own, in a process of its own.

        with Broker(num_partitions=3) as broker:
            print(broker.bootstrap_servers)

    Settings carry Kafka's names, with underscores in place of dots, or in `settings` as they are. Without `directory`
    the data is removed at the end; with one, it stays, and the next Broker there finds it. The address is the same from
    start to end, also after `kill` and `start`.

    With `can_cut=True` clients come through a relay, so that `cut` and `delay` are possible.

    Calls return when what they do is done. In asynchronous tests, those that take a moment (`start`, `restart`, `stop`)
    are best called by `await asyncio.to_thread(broker.restart)`.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        directory: str | Path | None = None,
        can_cut: bool = False,
        **kafka: Any,
    ) -> None:
        super().__init__(directory)
        self._cuts = Cuts() if can_cut else None
        self._settings = {**_QUICK, **kafka_settings(settings, kafka)}
        self._ports = HeldPorts()
        self._port = 0
        self._process: NodeProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        """For clients. Raises NodeDied if the broker was never started."""
        self._node()
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        return self._node().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    @property
    def log(self) -> str:
        """The end of what the node has logged since it was started."""
        return self._node().last_words()

    def _node(self) -> NodeProcess:
        if self._process is None:
            if not self._port:
                (self._port,) = self._ports.take(1)
            root, port, settings = self.directory, self._port, dict(self._settings)
            if self._cuts is not None:
                (port,) = self._ports.take(1)
                settings["advertised.listeners"] = f"PLAINTEXT://{HOST}:{self._port}"
                self._cuts.start_before([(_NODE_ID, self._port, port, True)])
                self._cuts.wait_until_ready()
            options = ["--data", str(root / "data"), "--port", str(port)]
            options += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
            self._process = NodeProcess("the broker", [*SERVE, *options], root / "broker.log")
        return self._process

    def start(self) -> None:
        """Starts it, the first time or again: on the same data, at the same address. Raises NodeDied with its log."""
        node = self._node()
        node.spawn()
        wait_until_ready([node])

    def stop(self) -> None:
        """A clean stop."""
        self._node().stop()

    def kill(self) -> None:
        """As `kill -9`."""
        self._node().kill()

    def restart(self) -> None:
        """Kills it if it runs, and starts it again."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """It stands still and answers nothing until `resume`; its connections stay open."""
        self._node().pause()

    def resume(self) -> None:
        self._node().resume()

    def mend(self) -> None:
        self.heal()
        self.resume()
        if not self.is_running:
            self.start()

    # -- the way to it

    def cut(self) -> None:
        """Nothing goes between clients and it, until `heal`. Connections stay open, and what is sent waits."""
        self._relay().cut(_BOTH_WAYS)

    def delay(self, seconds: float) -> None:
        """What clients send, and what they are answered, arrives so much later, until `heal`."""
        self._relay().delay(_BOTH_WAYS, seconds)

    def heal(self) -> None:
        """All cuts and delays are over."""
        if self._cuts is not None and self._process is not None:
            self._cuts.heal()

    def _relay(self) -> Cuts:
        self._node()
        if self._cuts is None:
            raise ValueError("nothing stands between clients and this broker: make it with Broker(can_cut=True)")
        return self._cuts

    def _close(self) -> None:
        if self._process is not None:
            self._process.kill()
        if self._cuts is not None:
            self._cuts.close()
        self._ports.close()
        self._port = 0

"""Who of a local cluster hears whom, and how late: pairs that are cut or slow, and the relay process between them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from semel.local.layout import CLIENTS, Layout
from semel.local.relay import CLIENTS as ALL_CLIENTS

_END_TIMEOUT_S = 5.0


class Cuts:
    """`start` before the nodes: they find each other through the relay."""

    def __init__(self) -> None:
        self._cut: set[tuple[int, int]] = set()
        self._delays_s: dict[tuple[int, int], float] = {}
        self._relay: subprocess.Popen[bytes] | None = None

    def start(self, layout: Layout) -> None:
        self.start_before(
            [
                (node.node_id, node.advertised[name], port, name == CLIENTS)
                for node in layout.nodes
                for name, port in node.ports.items()
            ]
        )

    def start_before(self, listeners: Sequence[tuple[int, int, int, bool]]) -> None:
        """Each a node, the port at which it is found, its own port, and whether clients come there."""
        self._relay = subprocess.Popen(
            [sys.executable, "-m", "semel.local.relay", json.dumps(listeners)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )

    def wait_until_ready(self) -> None:
        """Call it once after `start`, or without that."""
        self._answer()

    def cut(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Nothing goes from the first to the second of each pair any more. Number 0 stands for all clients."""
        self._cut.update(pairs)
        self._tell()

    def delay(self, pairs: Sequence[tuple[int, int]], seconds: float) -> None:
        """What goes from the first to the second of each pair arrives so much later; 0 ends that."""
        for pair in pairs:
            self._delays_s[pair] = seconds
        self._tell()

    def heal(self, pairs: Sequence[tuple[int, int]] | None = None) -> None:
        """Cuts and delays: all of them if none are given."""
        healed = {*self._cut, *self._delays_s} if pairs is None else set(pairs)
        self._cut -= healed
        self._delays_s = {pair: delay_s for pair, delay_s in self._delays_s.items() if pair not in healed}
        self._tell()

    def _tell(self) -> None:
        if self._relay is None or self._relay.stdin is None:
            raise RuntimeError("the cluster is not running")
        delays = [(source, target, delay_s) for (source, target), delay_s in sorted(self._delays_s.items())]
        self._relay.stdin.write(json.dumps({"cut": sorted(self._cut), "delays": delays}).encode() + b"\n")
        self._relay.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        """When this returns, what was told holds."""
        if self._relay is not None and self._relay.stdout is not None and not self._relay.stdout.readline():
            raise RuntimeError(f"the relay between the nodes has ended with code {self._relay.wait()}")

    def close(self) -> None:
        if self._relay is None:
            return
        relay, self._relay = self._relay, None
        self._cut.clear()
        self._delays_s.clear()
        relay.kill()
        relay.wait(_END_TIMEOUT_S)
        for pipe in (relay.stdin, relay.stdout):
            if pipe is not None:
                pipe.close()


__all__ = ["ALL_CLIENTS", "Cuts"]

"""/metrics, /health and /ready of one node, for Prometheus and for those who start and stop nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from semel.broker.measurements import measured
from semel.config.listeners import spelled
from semel.metrics.exposition import TextForm, exposed, text_form
from semel.rpc.http import HttpServer, Page

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.host.loop_turns import LoopTurns


class Monitoring:
    """It listens before the node serves, so that a long recovery is seen as such. `turns`: of the loop."""

    def __init__(self, broker: Broker, turns: LoopTurns | None = None) -> None:
        self._broker = broker
        self._turns = turns
        self._server = HttpServer(
            broker.host, {"/metrics": self._metrics, "/health": self._health, "/ready": self._ready}
        )
        # Whoever asks while a text is being made gets the same one.
        self._making: dict[TextForm, asyncio.Task[Page]] = {}

    async def listen(self, host: str, port: int) -> None:
        """Raises OSError."""
        self.address = f"http://{spelled(host or '*', await self._server.listen(host, port))}"

    async def _metrics(self, accept: str) -> Page:
        if not self._broker.is_started:
            return Page([b"The node has not started yet.\n"], status=503)
        form = text_form(accept)
        making = self._making.get(form)
        if making is None:
            making = self._making[form] = asyncio.get_running_loop().create_task(self._made(form))
            making.add_done_callback(lambda _: self._making.pop(form, None))
        return await asyncio.shield(making)

    async def _made(self, form: TextForm) -> Page:
        broker = self._broker
        slices = broker.long_requests.slices

        async def pause() -> None:
            if slices.step():
                await slices.next()

        most_series = broker.config.int("metrics.max.series")
        parts = await exposed(measured(broker, self._turns), form, most_series, pause)
        return Page(parts, form.content_type)

    async def _health(self, accept: str) -> Page:
        """That the loop turns, and has not stopped for an error of the disk: a node that has ends at once."""
        return Page([b"ok\n"])

    async def _ready(self, accept: str) -> Page:
        why = self._broker.why_not_ready
        return Page([b"ready\n"]) if why is None else Page([f"{why}\n".encode()], status=503)

    def close(self) -> None:
        self._server.close()
        for making in list(self._making.values()):
            making.cancel()

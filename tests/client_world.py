"""A simulated world for the client: our broker, the fault proxy before it, and hosts for clients, all under one seed.

Also the truth to judge by: what each partition's log holds, read past the proxy, and which records a reader of
committed data may see, worked out from the markers alone and not from the broker's list of aborted transactions.
"""

from __future__ import annotations

import asyncio
import random as random_module
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "unit/broker"))

from broker_harness import BROKER, PORT, Node, RawClient, batch_of, fetch_request, partition_of, produce_request
from transaction_harness import READ_COMMITTED, committed_values

from semel.host.api import Host
from semel.records.batch import whole_batches
from semel.records.control import ControlType, read_control
from semel.records.read import read_records
from semel.sim.attack.fault_answers import FIRST_GENERATION_HIDDEN, FIRST_GENERATION_LIMITS
from semel.sim.attack.fault_policy import Faults, NoFaults
from semel.sim.attack.fault_proxy import FaultProxy
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.sim.power import PowerLost

__all__ = ["BROKER", "PORT", "ClientWorld", "Logged", "RawClient", "batch_of", "produce_request"]

PROXY = "proxy"
SETTINGS = {
    "advertised.listeners": f"PLAINTEXT://{BROKER}:{PORT}",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
END_S = 3600.0 * 6


class Logged(NamedTuple):
    """A data record of a log. `is_committed` is None while its transaction is open, True outside of transactions."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    is_committed: bool | None


class ClientWorld:
    """`generation` 1 hides from clients that the broker knows the second generation of transactions."""

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        *,
        generation: int = 2,
        settings: Mapping[str, str] | None = None,
        **world_options: Any,
    ) -> None:
        self.loop = SimLoop(end_s=END_S)
        self.sim = SimWorld(self.loop, seed, **world_options)
        self.node = Node(self.sim, {**SETTINGS, **(settings or {})})
        self.faults = faults or NoFaults()
        self.calm: Callable[[], None] = lambda: None
        """Ends the faults."""
        self.generation = generation
        self.address = ""
        self.events: list[str] = []
        self.proxies: list[FaultProxy] = []
        self._hosts = 0

    @property
    def proxy(self) -> FaultProxy:
        """The first one, before which `address` is."""
        return self.proxies[0]

    def run(self, scenario: Callable[[ClientWorld], Coroutine[Any, Any, None]]) -> None:
        """Broker and proxy are up when the scenario begins. A failure carries what the proxy did."""

        async def whole() -> None:
            await self.node.start()
            self.address = await self.behind(self.faults)
            await scenario(self)
            for proxy in self.proxies:
                proxy.check()
                await proxy.close()
            for reason in self.node.broken:
                if not isinstance(reason, PowerLost):  # that a node has died is no news
                    raise reason

        try:
            run(whole(), loop=self.loop)
        except BaseException as failure:
            failure.add_note(f"seed {self.sim.seed}, generation {self.generation}")
            for event in self.events:
                failure.add_note(event)
            for proxy in self.proxies:
                failure.add_note(proxy.report())
            raise

    async def behind(self, faults: Faults) -> str:
        """The address of another proxy, with faults of its own."""
        name = f"{PROXY}{len(self.proxies)}"
        is_first = self.generation == 1
        proxy = FaultProxy(
            self.sim.host(name),
            faults,
            name=name,
            version_limits=FIRST_GENERATION_LIMITS if is_first else None,
            hidden_features=FIRST_GENERATION_HIDDEN if is_first else (),
        )
        self.proxies.append(proxy)
        return await proxy.open(BROKER, PORT)

    def note(self, event: str) -> None:
        self.events.append(f"{self.loop.time():10.4f} {event}")

    def random(self, purpose: str) -> random_module.Random:
        return self.sim.random(purpose)

    def host(self, name: str = "client") -> Host:
        """A new machine for a client."""
        self._hosts += 1
        return self.sim.host(f"{name}{self._hosts}")

    # -- the broker dies

    async def lose_broker(self, *, power: bool, down_s: float) -> None:
        self.note(f"the broker {'loses power' if power else 'is killed'} for {down_s:.3f} s")
        if power:
            self.sim.lose_power(BROKER)
        else:
            self.sim.kill(BROKER)
        await asyncio.sleep(down_s)
        await self.node.start()
        self.note("the broker is back")

    # -- the truth

    async def create_topic(self, name: str, partitions: int) -> None:
        client = await self.node.client()
        assert (await client.create_topic(name, partitions)).error_code == 0
        client.close()

    async def logged(self, topic: str, partition: int) -> list[Logged]:
        """All data records up to the high watermark, with what became of their transactions."""
        client = await self.node.client()
        try:
            return await _logged(client, topic, partition)
        finally:
            client.close()

    async def committed(self, topic: str, partition: int) -> list[bytes | None]:
        """What a reader of committed data gets, by the broker's list of aborted transactions. Small topics only."""
        client = await self.node.client()
        try:
            request = fetch_request({(topic, partition): 0}, isolation_level=READ_COMMITTED)
            part = partition_of(await client.ask(request, 12), topic, partition)
            values = committed_values(part)
            headers = [header for _, header in whole_batches(bytes(part.records or b""))]
            read_to = headers[-1].next_offset if headers else 0
            assert read_to >= part.last_stable_offset, "one fetch reads it all"
            return values
        finally:
            client.close()

    def open_transactions(self, topic: str, partition: int) -> int:
        """How many records the last stable offset is behind the end."""
        log = self.node.broker.topics.partition(topic, partition).log
        return int(log.end_offset - log.last_stable_offset)


async def _logged(client: RawClient, topic: str, partition: int) -> list[Logged]:
    found: list[Logged] = []
    open_by_producer: dict[int, list[int]] = {}
    offset = 0
    while True:
        part = partition_of(await client.ask(fetch_request({(topic, partition): offset}), 12), topic, partition)
        assert part.error_code == 0, part.error_code
        data = bytes(part.records or b"")
        for position, header in whole_batches(data):
            offset = header.next_offset
            batch = data[position : position + header.size_bytes]
            if header.is_control:
                marker = read_control(batch, header)
                assert marker is not None
                for index in open_by_producer.pop(header.producer_id, []):
                    found[index] = found[index]._replace(is_committed=marker.kind == ControlType.COMMIT)
                continue
            is_committed = None if header.is_transactional else True
            for record in read_records(batch, header):
                if header.is_transactional:
                    open_by_producer.setdefault(header.producer_id, []).append(len(found))
                found.append(Logged(record.offset, record.key, record.value, header.producer_id, is_committed))
        if offset >= part.high_watermark:
            return found

"""How the clients of a workload reach the world: hosts, addresses, chance, topics; and the history they write."""

from __future__ import annotations

import asyncio
import math
import random as random_module
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from semel.client.consumer.consumer import Consumer
from semel.client.metadata import TopicPartition
from semel.client.producer.producer import Producer
from semel.host.api import Host
from semel.sim.history import History

FIRST_GENERATION = 1
SECOND_GENERATION = 2

LONG_MS = 600_000
"""A fault must not make a client give up: what it does not know, nobody can judge."""
CLOSE_S = 5.0


@dataclass(frozen=True)
class Load:
    """How many clients of each kind, and how patient everybody is."""

    partitions: int = 3
    plain_producers: int = 2
    transactors: int = 2
    """For each generation of transactions."""
    assigned_readers: int = 1
    """For each isolation level."""
    group_members: int = 2
    """In each of two groups: one of the classic protocol, one of KIP-848."""
    pipeline_workers: int = 2
    pause_s: tuple[float, float] = (0.0, 0.05)
    step_s: float = 0.0
    """Pauses end at multiples of it, for all clients at the same moments; 0: each when it likes."""
    patience_s: float = 20.0
    """After everything has healed: who does not get on for so long is stuck."""
    group_patience_s: float = 60.0
    """The same for groups: a member that died unseen holds its partitions for 45 s, if the cluster is set as usual."""
    ending_s: float = 180.0
    """After everything has healed: by then all must be over."""
    request_timeout_ms: int = 2_000
    transaction_timeout_ms: int = 15_000
    short_transaction_timeout_ms: int = 4_000
    """Of some producers, which sometimes take longer: the broker aborts their transactions."""
    session_timeout_ms: int = 6_000


@dataclass
class Access:
    """`hosts` gives each client its machine, `addresses` the way to the cluster for each generation of transactions,
    `random` chance of its own for every purpose."""

    history: History
    hosts: Callable[[str], Host]
    addresses: Mapping[int, str]
    random: Callable[[str], random_module.Random]
    name: str = "check"
    load: Load = field(default_factory=Load)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """For every client: how to log in, say."""
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def records_topic(self) -> str:
        return f"{self.name}-records"

    @property
    def results_topic(self) -> str:
        return f"{self.name}-results"

    @property
    def generations(self) -> list[int]:
        return sorted(self.addresses)

    def partitions(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(self.load.partitions)]

    @property
    def default_address(self) -> str:
        return self.addresses[self.generations[-1]]

    def connection(self, generation: int | None = None) -> dict[str, Any]:
        address = self.default_address if generation is None else self.addresses[generation]
        return {**self.settings, "bootstrap_servers": address, "bootstrap_timeout_ms": LONG_MS}

    def producer(self, process: str, generation: int | None = None, **settings: Any) -> Producer:
        """Small batches, down to one record each, several in flight: there is more that can go wrong."""
        random = self.random(f"{process}/settings")
        chosen: dict[str, Any] = {
            "client_id": process,
            "batch_size": random.choice([1, 200, 16_384]),
            "linger_ms": 0,
            "compression_type": random.choice(["none", "none", "none", "gzip", "lz4"]),
            "request_timeout_ms": self.load.request_timeout_ms,
            "delivery_timeout_ms": LONG_MS,
            "max_block_ms": LONG_MS,
            "retry_backoff_ms": 20,
            "retry_backoff_max_ms": 200,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 200,
        }
        if settings.get("transactional_id") is not None:
            chosen["transaction_timeout_ms"] = self.load.transaction_timeout_ms
        return Producer(host=self.hosts(process), **{**chosen, **self.connection(generation), **settings})

    def consumer(self, process: str, *topics: str, listener: Any = None, **settings: Any) -> Consumer:
        chosen: dict[str, Any] = {
            "client_id": process,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 200,
            "request_timeout_ms": self.load.request_timeout_ms,
            "default_api_timeout_ms": LONG_MS,
            "session_timeout_ms": self.load.session_timeout_ms,
            "heartbeat_interval_ms": self.load.session_timeout_ms // 6,
            "retry_backoff_ms": 20,
            "retry_backoff_max_ms": 200,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 200,
        }
        return Consumer(
            *topics, host=self.hosts(process), listener=listener, **{**chosen, **self.connection(), **settings}
        )

    async def pause(self, random: random_module.Random) -> None:
        pause_s, step_s = random.uniform(*self.load.pause_s), self.load.step_s
        if step_s:
            now_s = asyncio.get_running_loop().time()
            pause_s = math.ceil((now_s + pause_s) / step_s) * step_s - now_s
        await asyncio.sleep(pause_s)


def place_of(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"

"""Shows the metrics of producers and consumers by prometheus-client: `pip install 'semel[metrics]'`.

from semel.client.prometheus import register

register(producer)              # and whatever the program does with its registry shows it
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric as Family

from semel.metrics.client_metrics import CONSUMER, PRODUCER
from semel.metrics.exposition import Sample, family_of

if TYPE_CHECKING:
    from semel.metrics.declaration import Metric


class Measured(Protocol):
    """A producer or a consumer, of either kind."""

    def samples(self) -> dict[Metric, list[Sample]]: ...


class _Clients:
    """All that were registered in one registry and are still there; their names tell them apart (`client_id`)."""

    def __init__(self) -> None:
        self.clients: WeakSet[Measured] = WeakSet()

    def describe(self) -> list[Family]:
        return [family_of(metric, []) for metric in (*PRODUCER, *CONSUMER)]

    def collect(self) -> Iterator[Family]:
        told = [client.samples() for client in list(self.clients)]
        for metric in (*PRODUCER, *CONSUMER):
            samples = [sample for one in told for sample in one.get(metric, ())]
            if samples:
                yield family_of(metric, samples)


_of_registries: dict[CollectorRegistry, _Clients] = {}


def register(client: Measured, registry: CollectorRegistry = REGISTRY) -> None:
    """From now on, until nobody holds the client any more."""
    known = _of_registries.get(registry)
    if known is None:
        known = _of_registries[registry] = _Clients()
        registry.register(known)
    known.clients.add(client)

"""The client for programs without asyncio: the same producer, consumer and admin, blocking.

    with semel.sync.Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("payments", b"10.00 EUR", key=b"42")

All of them share one thread with an event loop, which is started with the first and ends with the last. Each is loaded
when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.sync.admin import Admin as Admin
    from semel.sync.consumer import Consumer as Consumer
    from semel.sync.producer import Delivery as Delivery
    from semel.sync.producer import Producer as Producer
    from semel.sync.transforming import Transform as Transform
    from semel.sync.transforming import transform as transform

__all__ = ["Admin", "Consumer", "Delivery", "Producer", "Transform", "transform"]

_HOMES = {
    "Admin": "semel.sync.admin",
    "Consumer": "semel.sync.consumer",
    "Delivery": "semel.sync.producer",
    "Producer": "semel.sync.producer",
    "Transform": "semel.sync.transforming",
    "transform": "semel.sync.transforming",
}


if not TYPE_CHECKING:  # type checkers would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'semel.sync' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

"""The client for programs without asyncio: the same producer, consumer and admin, blocking.

    with semel.sync.Producer(bootstrap_servers="localhost:9092") as producer:
        producer.send("payments", b"10.00 EUR", key=b"42")

All of them share one thread with an event loop, which is started with the first and ends with the last.
"""

from semel.sync.admin import Admin as Admin
from semel.sync.consumer import Consumer as Consumer
from semel.sync.producer import Delivery as Delivery
from semel.sync.producer import Producer as Producer

__all__ = ["Admin", "Consumer", "Delivery", "Producer"]

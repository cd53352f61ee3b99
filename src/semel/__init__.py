"""semel: an exactly-once event log for Python and Spark that speaks the Kafka protocol.

    import semel

    async with semel.Producer(bootstrap_servers="localhost:9092") as producer:
        await producer.send_and_wait("payments", b"10.00 EUR", key=b"42")

`Producer`, `Consumer`, `Admin` and what they give and raise are loaded when they are first used; `semel.sync` has the
same for programs without asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from semel.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from semel import sync as sync
    from semel.client import errors as errors
    from semel.client.admin.admin import Admin as Admin
    from semel.client.admin.values import NewTopic as NewTopic
    from semel.client.consumer.batches import Batch as Batch
    from semel.client.consumer.consumer import Consumer as Consumer
    from semel.client.consumer.membership.assignors import Assignor as Assignor
    from semel.client.consumer.membership.protocol import Assignment as Assignment
    from semel.client.consumer.membership.protocol import Subscription as Subscription
    from semel.client.metadata import TopicPartition as TopicPartition
    from semel.client.producer.producer import Producer as Producer
    from semel.client.transform import Transform as Transform
    from semel.client.transform import transform as transform
    from semel.client.values import GroupIdentity as GroupIdentity
    from semel.client.values import Message as Message
    from semel.client.values import OffsetAndMetadata as OffsetAndMetadata
    from semel.client.values import OffsetAndTimestamp as OffsetAndTimestamp
    from semel.client.values import RecordMetadata as RecordMetadata

_HOMES = {
    "Producer": "semel.client.producer.producer",
    "Consumer": "semel.client.consumer.consumer",
    "Admin": "semel.client.admin.admin",
    "Assignor": "semel.client.consumer.membership.assignors",
    "Assignment": "semel.client.consumer.membership.protocol",
    "Subscription": "semel.client.consumer.membership.protocol",
    "NewTopic": "semel.client.admin.values",
    "TopicPartition": "semel.client.metadata",
    "GroupIdentity": "semel.client.values",
    "Message": "semel.client.values",
    "OffsetAndMetadata": "semel.client.values",
    "OffsetAndTimestamp": "semel.client.values",
    "RecordMetadata": "semel.client.values",
    "Batch": "semel.client.consumer.batches",
    "Transform": "semel.client.transform",
    "transform": "semel.client.transform",
}
_MODULES = {"sync": "semel.sync", "errors": "semel.client.errors"}


if not TYPE_CHECKING:  # type checkers would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            found = import_module(_MODULES[name])
        elif name in _HOMES:
            found = getattr(import_module(_HOMES[name]), name)
        else:
            from difflib import get_close_matches

            near = get_close_matches(name, [*_HOMES, *_MODULES], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"module 'semel' has no attribute {name!r}{hint}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES])

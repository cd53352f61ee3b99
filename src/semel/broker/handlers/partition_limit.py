"""How many partitions one request may make: Kafka's limit, and its error."""

from __future__ import annotations

from collections.abc import Iterable

from semel.log.errors import Refused
from semel.wire.errors import ErrorCode

_MOST_AT_ONCE = 10_000
# A topic that is to have more is refused by itself.
_MOST_OF_A_TOPIC = 100_000


def too_many_partitions(counts: Iterable[int]) -> Refused | None:
    """Why a request that adds so many, topic by topic, is refused as a whole."""
    total = sum(count for count in counts if 0 < count <= _MOST_OF_A_TOPIC)
    if total <= _MOST_AT_ONCE:
        return None
    return Refused(ErrorCode.POLICY_VIOLATION, f"one request can make {_MOST_AT_ONCE} partitions at most, not {total}")

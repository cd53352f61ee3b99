"""Every metric of a client. `metrics()` has them without the prefix; prometheus-client gets them with it."""

from __future__ import annotations

from semel.metrics.counts_kernel import BOUNDS_S, Times
from semel.metrics.declaration import Metric, Type

COUNTER, GAUGE, HISTOGRAM = Type.COUNTER, Type.GAUGE, Type.HISTOGRAM
CLIENT = ("client_id",)
PLACE = ("client_id", "topic", "partition")
PRODUCER_PREFIX, CONSUMER_PREFIX = "semel_producer_", "semel_consumer_"

# fmt: off
PRODUCER = (
    RECORDS_SENT := Metric("semel_producer_records_sent", COUNTER, "Records that were delivered.", CLIENT),
    RECORDS_FAILED := Metric("semel_producer_records_failed", COUNTER, "Records whose delivery has failed.", CLIENT),
    BATCHES_SENT := Metric("semel_producer_batches_sent", COUNTER, "Batches that were delivered.", CLIENT),
    BYTES_SENT := Metric("semel_producer_bytes_sent", COUNTER, "Bytes of batches that were delivered.", CLIENT),
    BATCHES_RETRIED := Metric("semel_producer_batches_retried", COUNTER, "Batches that are sent once more.", CLIENT),
    PRODUCE_TIME := Metric("semel_producer_request_seconds", HISTOGRAM,
                           "How long answers to produce requests take.", CLIENT),
)
CONSUMER = (
    RECORDS_READ := Metric("semel_consumer_records_read", COUNTER, "Records handed to the program.", CLIENT),
    BYTES_FETCHED := Metric("semel_consumer_bytes_fetched", COUNTER, "Bytes of batches that were fetched.", CLIENT),
    FETCHES_FAILED := Metric("semel_consumer_fetches_failed", COUNTER, "Fetch requests that have failed.", CLIENT),
    FETCH_TIME := Metric("semel_consumer_fetch_seconds", HISTOGRAM,
                         "How long answers to fetch requests take, the wait for records included.", CLIENT),
    LAG := Metric("semel_consumer_lag", GAUGE,
                  "How many offsets the position is behind the end that may be read, as of the last answer.", PLACE),
)
# fmt: on


def times_document(name: str, times: Times) -> dict[str, float]:
    """How many there were, and how long they took; of the slowest hundredth the least, as its bucket tells it."""
    count = times.count
    return {
        f"{name}es" if name.endswith("h") else f"{name}s": count,
        f"{name}_seconds_average": times.total_ns / count / 1e9 if count else 0.0,
        f"{name}_seconds_p99": _quantile_s(times, count),
    }


def _quantile_s(times: Times, count: int) -> float:
    passed = 0
    for bound_s, found in zip(BOUNDS_S, times.counts, strict=False):
        passed += found
        if count and passed >= 0.99 * count:
            return bound_s
    return BOUNDS_S[-1] if count else 0.0

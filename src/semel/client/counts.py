"""What a producer and a consumer count, for `metrics()` and for prometheus-client."""

from __future__ import annotations

from semel.metrics.counts_kernel import Times


class ProducerCounts:
    def __init__(self) -> None:
        self.records = self.batches = self.size_bytes = 0
        self.failed_records = self.retried_batches = 0
        self.request_times = Times()

    def delivered(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.batches += 1
        self.size_bytes += size_bytes


class ConsumerCounts:
    def __init__(self) -> None:
        self.records = self.size_bytes = self.failed_fetches = 0
        self.fetch_times = Times()

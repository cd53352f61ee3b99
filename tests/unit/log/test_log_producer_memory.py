"""A producer costs one small row, so that a partition can know very many."""

from __future__ import annotations

import tracemalloc

from log_samples import NOW_MS, header_of

from semel.log.producers import Producers

MOST_ROW_BYTES = 110
MOST_BYTES = 256
COUNT = 50_000


def test_a_row_never_grows_past_its_limit() -> None:
    producers = Producers()
    for number in range(20):
        producers.apply(producers.check(header_of(1, number, transactional=True), number, NOW_MS))
    assert len(producers.rows()[1]) == MOST_ROW_BYTES


def test_a_producer_with_a_full_window_costs_less_than_256_bytes_of_memory() -> None:
    tracemalloc.start()
    try:
        producers = Producers()
        for producer in range(1_000_000, 1_000_000 + COUNT):
            header = header_of(producer, 0)
            for number in range(5):
                producers.apply(producers.check(header._replace(base_sequence=number), number, NOW_MS))
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(len(producers.rows()[producer]) == MOST_ROW_BYTES for producer in (1_000_000, 1_000_000 + COUNT - 1))
    assert used_bytes / COUNT < MOST_BYTES

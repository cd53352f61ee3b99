"""What a worker has loaded is set apart from the search for garbage that Spark has it do after every task."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from semel.spark.worker_memory import settle


@pytest.fixture
def thawed() -> Iterator[None]:
    settle.cache_clear()
    yield
    gc.unfreeze()
    settle.cache_clear()


@pytest.mark.usefixtures("thawed")
def test_what_is_there_is_set_apart_once_for_each_part() -> None:
    settle("read")
    after_reading = gc.get_freeze_count()
    later = [[number] for number in range(1000)]
    settle("read")
    again = gc.get_freeze_count()
    settle("write")
    after_writing = gc.get_freeze_count()
    assert after_reading > 10_000
    assert again <= after_reading
    assert after_writing >= again + len(later)

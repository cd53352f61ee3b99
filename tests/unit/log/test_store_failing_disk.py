"""A store on a disk that fails now and then, in any call, over several lives: nothing durable is lost, doubled, or
shown against the end of its transaction, and nobody else's records are there."""

from __future__ import annotations

import logging

import pytest
from store_lives import Lives
from test_log_store import simulated

LIVES = 5


@pytest.mark.parametrize("first", range(0, 320, 40))
def test_a_store_keeps_what_is_durable_whatever_the_disk_refuses(first: int) -> None:
    logging.getLogger("semel.log").setLevel(logging.CRITICAL)
    try:
        for seed in range(first, first + 40):
            lives = Lives(seed)
            try:
                for _ in range(LIVES):
                    simulated(lives.live())
            except BaseException:
                print(f"seed {seed}", *lives.story, sep="\n")
                raise
    finally:
        logging.getLogger("semel.log").setLevel(logging.NOTSET)

"""The long row of misfortunes: as many kills as SEMEL_CHAOS_KILLS says, drawn by SEMEL_CHAOS_SEED. `make chaos`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from chaos_misfortunes import BROKER_SETTINGS, Chaos
from chaos_plan import misfortunes_without_end, table
from chaos_world import ChaosWorld

from real_broker import Brokers

KILLS = int(os.environ.get("SEMEL_CHAOS_KILLS", "0"))
SEED = int(os.environ.get("SEMEL_CHAOS_SEED", time.time_ns() % 1_000_000))

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600 + 60 * KILLS),
    pytest.mark.skipif(KILLS == 0, reason="make chaos runs it (SEMEL_CHAOS_KILLS=45)"),
]


def test_each_record_is_there_once_after_a_long_row_of_misfortunes(spark_brokers: Brokers, tmp_path: Path) -> None:
    print(f"\n{KILLS} kills by the seed {SEED}: SEMEL_CHAOS_SEED={SEED} draws the same", flush=True)
    chaos = Chaos(spark_brokers.start(settings=BROKER_SETTINGS), tmp_path)
    try:
        chaos.begin(ChaosWorld(chaos.broker, tmp_path / "long", "long"))
        for befall in misfortunes_without_end(SEED):
            befall(chaos)
            if chaos.kills.total() >= KILLS:
                break
        verdict = chaos.finish()
        print(table(chaos, verdict), flush=True)
    finally:
        chaos.close()
    assert verdict.is_exactly_once, verdict
    assert verdict.marker == verdict.batches - 1
    assert verdict.staged_files == []

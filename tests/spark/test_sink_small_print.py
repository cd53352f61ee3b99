"""Small print of the sink, without Spark and without a broker: what is refused, what is lost, and when a retry ends."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from semel.client.errors import Disconnected
from semel.records.columns import largest_record
from semel.sim.host import SimWorld
from semel.sim.loop import SimLoop, run
from semel.spark.committer import Committer, Publication
from semel.spark.refusals import find_refused
from semel.spark.sink_errors import StagedDataLost
from semel.spark.staging import Staged, StagingArea
from semel.spark.topic_facts import TopicFacts

PRODUCER = {"bootstrap_servers": "broker:9092"}


def test_a_row_that_fits_uncompressed_is_not_refused_for_what_its_codec_makes_of_it() -> None:
    """Beside one that is too large, it is measured by itself. Noise grows when it is compressed."""
    noise = random.Random(1).randbytes(5000)
    fits = largest_record(pa.table({"value": pa.array([noise], pa.binary())}))
    assert fits is not None
    rows = pa.table({"value": pa.array([b"x" + random.Random(2).randbytes(9000), noise], pa.binary())})
    found = find_refused(rows, TopicFacts("t", 1, max_batch_bytes=fits.batch_bytes), 0, 1, None)
    assert [refused.row for refused in found] == [0]


def test_a_place_that_cannot_be_asked_has_lost_what_was_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(paths: Any) -> Any:
        raise OSError("the bucket does not answer")

    place = SimpleNamespace(system=SimpleNamespace(get_file_info=fails), child=lambda name: name)
    area = StagingArea(tmp_path.as_uri())
    monkeypatch.setattr(area, "_place", lambda: place)
    staged = SimpleNamespace(file="run-7-1", size_bytes=3, inline=b"", place="there")
    with pytest.raises(StagedDataLost, match="the bucket does not answer"):
        area.check([staged])  # type: ignore[list-item]


class NeverConnected(Committer):
    """Every attempt fails, and might not the next time."""

    attempts = 0

    async def _once(self, publication: Publication) -> bool:
        self.attempts += 1
        raise Disconnected("nobody is there")


@pytest.mark.parametrize("retry_for_s", [1.0, 3.0, 20.0])
def test_a_commit_is_not_tried_again_when_the_pause_before_it_would_last_too_long(retry_for_s: float) -> None:
    loop = SimLoop(end_s=3600)
    host = SimWorld(loop, 1).host("driver")
    committer = NeverConnected(host, PRODUCER, PRODUCER, "markers", StagingArea(None), retry_for_s=retry_for_s)
    none_staged: list[Staged] = []
    ended_s = 0.0

    async def commits() -> None:
        nonlocal ended_s
        began_s = loop.time()
        with pytest.raises(Disconnected):
            await committer.commit(Publication(none_staged, "sink-q", None))
        ended_s = loop.time() - began_s

    run(commits(), loop=loop)
    assert committer.attempts > 2
    assert retry_for_s / 3 < ended_s < retry_for_s

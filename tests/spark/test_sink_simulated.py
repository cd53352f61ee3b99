"""The commit under seeds of trouble: killed and hanging drivers, zombies, a dying broker, a bad network, timeouts.

The harness itself is tried on commits with planted mistakes, each of which it must catch.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from simulated_runs import MARKERS, PARTITIONS, TOPIC, Runs, SparkLog, judge

from client_world import ClientWorld
from semel.client.producer.producer import Producer
from semel.sim.attack.fault_policy import drawn_faults
from semel.spark.committer import Committer, Publication
from semel.spark.marker import Marker, MarkerTopic

SEEDS = range(int(os.environ.get("SEMEL_SINK_SEEDS", "12")))
SEEDS_FOR_MISTAKES = range(400)
BATCHES = 4
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


def run_seed(seed: int, committer: type[Committer] = Committer, generation: int = 2, trouble: int = 6) -> None:
    chosen = random.Random(seed)
    faults = drawn_faults(chosen, most=12)
    world = ClientWorld(seed, faults, generation=generation, settings=SETTINGS)

    async def scenario(world: ClientWorld) -> None:
        await world.create_topic(TOPIC, PARTITIONS)
        await Runs(world, SparkLog(BATCHES), trouble=trouble, committer=committer).until_finished()
        await judge(world, BATCHES)

    world.run(scenario)


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_is_published_once_and_in_order_whatever_happens(seed: int, generation: int) -> None:
    run_seed(seed, generation=generation)


# -- mistakes that must be caught


class ReadsFirst(Committer):
    """The marker is read before InitProducerId."""

    async def _attempt(self, publication: Publication, markers: MarkerTopic | None) -> bool:
        assert markers is not None
        if await self._is_done(publication, markers):
            return False
        return await super()._attempt(publication, _Blind())  # type: ignore[arg-type]


class _Blind:
    async def last(self, key: str) -> Any:
        return None


class ReadsFirstAndGoesOn(ReadsFirst):
    async def _is_done(self, publication: Publication, markers: Any) -> bool:
        if isinstance(markers, _Blind):
            return False
        return await super()._is_done(publication, markers)


class MarksOutside(Committer):
    """The marker is written after the transaction, in one of its own."""

    async def _publish(self, publication: Publication, publishing: Any, producer: Producer) -> None:
        await publishing.send_all(_nothing)

    async def _end(self, producer: Producer, *, is_marked: bool) -> None:
        await super()._end(producer, is_marked=is_marked)

    async def _attempt(self, publication: Publication, markers: MarkerTopic | None) -> bool:
        is_new = await super()._attempt(publication, markers)
        succession = publication.succession
        if is_new and succession is not None:
            marker: Marker = succession.marker(publication.transactional_id, "", 0)
            async with Producer(host=self._host, **self._connection) as producer:
                await producer.send_and_wait(MARKERS, marker.encode(), succession.key.encode(), partition=0)
        return is_new


async def _nothing() -> None:
    pass


class NeverAsks(Committer):
    """Publishes without a look at the marker: at least once."""

    async def _is_done(self, publication: Publication, markers: MarkerTopic) -> bool:
        return False


@pytest.mark.parametrize("mistake", [ReadsFirstAndGoesOn, MarksOutside, NeverAsks])
def test_a_commit_with_a_mistake_is_caught(mistake: type[Committer]) -> None:
    with pytest.raises(AssertionError, match=r"partition \d holds .*, expected"):
        _run_many(mistake)


def _run_many(mistake: type[Committer]) -> None:
    for seed in SEEDS_FOR_MISTAKES:
        run_seed(seed, mistake, trouble=8)

"""What an attack does, and when: without nodes, without time passing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from semel.sim.attack.assault import ON_NODES, PROCESS, Assault, FaultKind
from semel.sim.attack.fault_policy import Fault, NoFaults, Passing
from semel.sim.attack.fault_proxy import FaultProxy
from semel.sim.attack.weather import CUTS, DELAYS, Weather
from semel.sim.history import History, Note
from semel.sim.host import SimWorld
from semel.sim.loop import run

PRODUCE = Passing(1, 0, 12, 1)
FETCH = Passing(1, 1, 16, 1)


class FakeNode:
    name = "node 7"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_up = True
        self.is_paused = False

    async def kill(self) -> None:
        self.calls.append("kill")
        self.is_up = False

    async def start(self) -> None:
        self.calls.append("start")
        self.is_up = True

    def pause(self) -> None:
        self.calls.append("pause")
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False


def attacked_for(seconds: float, kinds: list[FaultKind], seed: int = 1) -> tuple[FakeNode, Weather, Assault, History]:
    node, weather, history = FakeNode(), Weather(random.Random(seed)), History()
    assault = Assault(kinds, [node], [weather], random.Random(seed), history)

    async def attack() -> None:
        work = asyncio.get_running_loop().create_task(assault.run())
        await asyncio.sleep(seconds)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await assault.heal()

    run(attack())
    return node, weather, assault, history


def test_calm_weather_lets_everything_pass() -> None:
    weather = Weather(random.Random(1))
    assert all(weather.blow_for(PRODUCE) is None for _ in range(100))


def test_a_storm_cuts_or_delays_and_meets_what_changes_something_more_often() -> None:
    for name, faults in (("cut_chance", CUTS), ("delay_chance", DELAYS)):
        weather = Weather(random.Random(1))
        setattr(weather, name, 0.5)
        met = Counter(kind for kind in (PRODUCE, FETCH) for _ in range(400) if weather.blow_for(kind) is not None)
        assert set(weather.dealt) == set(faults)
        assert 0 < met[FETCH] < met[PRODUCE] / 2
        weather.calm()
        assert weather.blow_for(PRODUCE) is None


def test_before_a_node_dies_answers_to_changes_are_swallowed() -> None:
    weather = Weather(random.Random(1))
    weather.swallows_answers = True
    blow = weather.blow_for(PRODUCE)
    assert blow is not None
    assert blow.fault is Fault.SWALLOW_ANSWERS
    assert weather.blow_for(FETCH) is None


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_strikes_and_heals(kind: FaultKind) -> None:
    for seconds in (2.0, 5.0, 20.3):
        node, weather, assault, _ = attacked_for(seconds, [kind])
        assert set(assault.dealt) == {kind}
        assert node.is_up
        assert not node.is_paused
        assert (weather.cut_chance, weather.delay_chance, weather.swallows_answers) == (0.0, 0.0, False)
        if kind in ON_NODES:
            assert kind.value in node.calls


def test_nothing_is_healed_before_what_was_held_back_has_gone_on() -> None:
    async def scenario() -> None:
        history = History()
        proxy = FaultProxy(SimWorld(asyncio.get_running_loop(), 1).host("proxy"), NoFaults())  # type: ignore[arg-type]
        assault = Assault([], [], [], random.Random(1), history, [proxy])
        with proxy.holding():
            healing = asyncio.ensure_future(assault.heal())
            await asyncio.sleep(10)
            assert not healing.done()
        await healing
        assert [operation.text for operation in history.operations if isinstance(operation, Note)] == [
            "everything is healed"
        ]

    run(scenario())


def test_in_every_round_each_kind_comes_once() -> None:
    _, _, assault, _ = attacked_for(60, list(FaultKind))
    assert max(assault.dealt.values()) - min(assault.dealt.values()) <= 1


def test_faults_are_noted_in_the_history_with_their_ends() -> None:
    _, _, assault, history = attacked_for(30, list(FaultKind))
    notes = [operation for operation in history.operations if isinstance(operation, Note)]
    assert all(note.process == PROCESS for note in notes)
    assert len(notes) == assault.dealt.total() + 1
    assert notes[-1].text == "everything is healed"
    assert sum(note.is_ok for note in notes) >= len(notes) - 1, "the one that was broken off has no end"


def test_a_seed_is_an_attack() -> None:
    first, again, other = (attacked_for(30, list(FaultKind), seed)[3] for seed in (1, 1, 2))
    assert list(first.lines()) == list(again.lines())
    assert list(first.lines()) != list(other.lines())


def test_without_kinds_nothing_happens() -> None:
    node, _, assault, _ = attacked_for(5, [])
    assert not assault.dealt
    assert node.calls == ["start"]

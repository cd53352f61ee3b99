"""What the proxies do to requests while an attack goes on: nothing, cuts, delays, or answers that never arrive."""

from __future__ import annotations

import random as random_module
from collections import Counter

from semel.sim.attack.fault_policy import Blow, Fault, Passing

CUTS = (
    Fault.CUT_BEFORE,
    Fault.CUT_IN_REQUEST,
    Fault.CUT_AFTER,
    Fault.CUT_AFTER,
    Fault.CUT_IN_ANSWER,
    Fault.LATE_REQUEST,
)
"""Most of them after the broker has done what it was asked for: only then can something be done twice."""
DELAYS = (Fault.DELAY_REQUEST, Fault.DELAY_ANSWER, Fault.DRIP_REQUEST, Fault.DRIP_ANSWER)
CHANGING = frozenset({"Produce", "EndTxn", "TxnOffsetCommit", "OffsetCommit", "AddPartitionsToTxn", "AddOffsetsToTxn"})
"""Requests that change something. There are many more that only ask, so these are met more often."""


class Weather:
    """Calm at first. `dealt` counts what was done."""

    def __init__(self, random: random_module.Random, *, delay_s: tuple[float, float] = (0.02, 1.0)) -> None:
        self.cut_chance = 0.0
        self.delay_chance = 0.0
        self.swallows_answers = False
        """Requests are served, but nobody hears of it: what a node knows when it dies, its clients do not."""
        self.dealt: Counter[Fault] = Counter()
        self._random = random
        self._delay_s = delay_s

    def calm(self) -> None:
        self.cut_chance = 0.0
        self.delay_chance = 0.0
        self.swallows_answers = False

    def blow_for(self, request: Passing) -> Blow | None:
        blow = self._drawn(request)
        if blow is not None:
            self.dealt[blow.fault] += 1
        return blow

    def _drawn(self, request: Passing) -> Blow | None:
        if self.swallows_answers and request.name in CHANGING:
            return Blow(Fault.SWALLOW_ANSWERS)
        if self.cut_chance == 0.0 and self.delay_chance == 0.0:
            return None
        random = self._random
        weight = 1.0 if request.name in CHANGING else 0.2
        delay_s, share = random.uniform(*self._delay_s), random.random()
        if random.random() < self.cut_chance * weight:
            return Blow(random.choice(CUTS), delay_s, share)
        if random.random() < self.delay_chance * weight:
            return Blow(random.choice(DELAYS), delay_s, share)
        return None

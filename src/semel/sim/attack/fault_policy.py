"""Which fault meets which request: by a seed with chances, or by a script. The proxy asks, and carries it out.

A fault is chosen when the request comes by, for the request and its answer together. The number of faults is bounded,
so that every run ends in a calm network.
"""

from __future__ import annotations

import random as random_module
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from semel.wire.apis import API


class Fault(Enum):
    """After a cut both ends are closed. A stream has no holes: what vanishes takes all that follows with it."""

    CUT_BEFORE = "cut before the request was passed on"
    CUT_IN_REQUEST = "cut in the middle of the request"
    CUT_IN_ANSWER = "cut in the middle of the answer"
    CUT_AFTER = "answer lost: cut when the broker had answered"
    LATE_REQUEST = "client cut at once, request passed on later"
    DELAY_REQUEST = "request delayed"
    DELAY_ANSWER = "answer delayed"
    DRIP_REQUEST = "request passed on in drips"
    DRIP_ANSWER = "answer passed on in drips"
    DUPLICATE = "request passed on twice, second answer swallowed"
    REFUSE = "not passed on, but answered with an error"
    DENY = "served, but answered with an error"
    SWALLOW_REQUESTS = "request and all later ones swallowed"
    SWALLOW_ANSWERS = "answer and all later ones swallowed"


OVERTAKING = (Fault.LATE_REQUEST, Fault.DELAY_REQUEST, Fault.CUT_BEFORE, Fault.REFUSE)
"""Together they make requests arrive after those that were sent later in their stead."""

MAY_COME_TWICE = frozenset(
    api.key
    for api in API.values()
    if api.name
    in {
        "Produce",
        "Metadata",
        "FindCoordinator",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
        "OffsetCommit",
        "OffsetFetch",
        "Heartbeat",
    }
)
"""Repeating these changes nothing. A second InitProducerId, for one, fences the first."""

POSSIBLE: dict[Fault, frozenset[int]] = {
    Fault.DUPLICATE: MAY_COME_TWICE,
    Fault.REFUSE: frozenset({0, 22, 25, 26}),
    Fault.DENY: frozenset({0, 25, 26}),
}
"""Faults that only some APIs can meet, by key."""


class Passing(NamedTuple):
    """A request on its way: which connection of the proxy it uses, and what its header says."""

    connection: int
    api_key: int
    version: int
    correlation_id: int

    @property
    def name(self) -> str:
        return API[self.api_key].name


class Blow(NamedTuple):
    """A fault, with what it needs: a pause, and where in the frame to cut, as a share of it."""

    fault: Fault
    delay_s: float = 0.0
    share: float = 0.5


class Faults(Protocol):
    def blow_for(self, request: Passing) -> Blow | None: ...


class NoFaults:
    def blow_for(self, request: Passing) -> Blow | None:
        return None


class SeededFaults:
    """Each request is met with the given chances, `most` times in all."""

    def __init__(
        self,
        random: random_module.Random,
        chances: Mapping[Fault, float],
        *,
        most: int,
        delay_s: tuple[float, float] = (0.001, 1.0),
        only: Iterable[str] = (),
    ) -> None:
        if sum(chances.values()) > 1:
            raise ValueError("the chances add up to more than one")
        self._random = random
        self._chances = dict(chances)
        self._left = most
        self._delay_s = delay_s
        self._only = frozenset(only)
        self.dealt: Counter[Fault] = Counter()

    def calm(self) -> None:
        """From now on everything passes."""
        self._left = 0

    def blow_for(self, request: Passing) -> Blow | None:
        if self._left <= 0 or (self._only and request.name not in self._only):
            return None
        roll, delay_s, share = self._random.random(), self._random.uniform(*self._delay_s), self._random.random()
        fault = self._fault_at(roll)
        if fault is None or (fault in POSSIBLE and request.api_key not in POSSIBLE[fault]):
            return None
        self._left -= 1
        self.dealt[fault] += 1
        return Blow(fault, delay_s, share)

    def _fault_at(self, roll: float) -> Fault | None:
        for fault, chance in self._chances.items():
            if roll < chance:
                return fault
            roll -= chance
        return None


def drawn_faults(random: random_module.Random, *, most: int, only: Iterable[str] = ()) -> SeededFaults:
    """A few kinds of faults and a rate, drawn for this run: runs differ more than if all kinds were always there."""
    if random.random() < 0.2:
        kinds = list(OVERTAKING)
    else:
        kinds = random.sample(list(Fault), random.randint(1, len(Fault)))
    rate = random.choice([0.02, 0.05, 0.1, 0.2, 0.4])
    longest_s = random.choice([0.01, 0.3, 3.0, 40.0])
    return SeededFaults(
        random,
        {kind: rate / len(kinds) for kind in kinds},
        most=random.randint(1, most),
        delay_s=(0.0, longest_s),
        only=only,
    )


class ScriptedFaults:
    """The nth request of an API, from one on and over all connections, meets the blow that stands there for it."""

    def __init__(self, script: Mapping[tuple[str, int], Blow], when: Callable[[Passing], bool] | None = None) -> None:
        self._script = dict(script)
        self._when = when
        self.seen: Counter[str] = Counter()

    def blow_for(self, request: Passing) -> Blow | None:
        if self._when is not None and not self._when(request):
            return None
        self.seen[request.name] += 1
        return self._script.get((request.name, self.seen[request.name]))

"""What a proxy of the simulated world does to requests: besides what weather does, some come twice, and some late."""

from __future__ import annotations

from semel.sim.attack.fault_policy import Blow, Fault, Passing
from semel.sim.attack.weather import CHANGING, Weather

LATE_S = (0.03, 0.06, 0.1, 0.3, 0.8)
"""Some longer than it takes a client to connect, to ask again and to go on."""
LATE_WEIGHTS = {"EndTxn": 3.0, "Produce": 0.5}
"""One Produce of many is enough to be in the way of its transaction; an end is there once."""


class DoublingWeather(Weather):
    """Requests that may come twice also do, if asked for; and some come late, when the client has asked again."""

    duplicate_chance = 0.0
    late_chance = 0.0

    def calm(self) -> None:
        super().calm()
        self.duplicate_chance = 0.0
        self.late_chance = 0.0

    def blow_for(self, request: Passing) -> Blow | None:
        blow = super().blow_for(request)
        if blow is not None or request.name not in CHANGING:
            return blow
        if self.late_chance and self._random.random() < self.late_chance * LATE_WEIGHTS.get(request.name, 1.0):
            self.dealt[Fault.LATE_REQUEST] += 1
            return Blow(Fault.LATE_REQUEST, self._random.choice(LATE_S) * self._random.uniform(0.5, 1.5))
        if self.duplicate_chance and self._random.random() < self.duplicate_chance:
            self.dealt[Fault.DUPLICATE] += 1
            return Blow(Fault.DUPLICATE)
        return None

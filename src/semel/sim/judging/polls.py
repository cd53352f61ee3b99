"""Did every reader get the records in order, leaving none out?"""

from __future__ import annotations

from collections.abc import Iterator

from semel.sim.history import Outcome
from semel.sim.judging.anomalies import Anomaly, Kind
from semel.sim.judging.facts import Facts


def skipped(facts: Facts) -> Iterator[Anomaly]:
    for poll, place, after, before, is_inside in facts.gaps:
        view = facts.views[poll.reads_committed]
        missed = view.first_between(place, after, before)
        if missed is None:
            continue
        kind = Kind.INSIDE_POLL_SKIP if is_inside else Kind.POLL_SKIP
        text = (
            f"{poll.process} got offset {before} of {place} after {'the start' if after < 0 else after} at "
            f"{poll.ended_ms} ms, but {facts.at[place][missed]} stands at {missed}"
        )
        yield Anomaly(kind, text)


def went_back(facts: Facts) -> Iterator[Anomaly]:
    for poll, place, last, offset, is_inside in facts.backs:
        kind = Kind.INSIDE_POLL_BACK if is_inside else Kind.POLL_BACK
        yield Anomaly(kind, f"{poll.process} got offset {offset} of {place} after {last} at {poll.ended_ms} ms")


def unreadable(facts: Facts) -> Iterator[Anomaly]:
    """Told once for each reader and reason: it tries again and again."""
    told: set[tuple[str, str]] = set()
    for poll in facts.polls:
        reason = (poll.process, poll.error)
        if poll.outcome is Outcome.FAIL and reason not in told:
            told.add(reason)
            yield Anomaly(Kind.UNREADABLE, f"{poll.process} at {poll.ended_ms} ms: {poll.error}")


def stuck(facts: Facts) -> Iterator[Anomaly]:
    for finish in facts.finishes:
        if not finish.is_ok:
            yield Anomaly(Kind.STUCK, f"{finish.process} in {finish.place}: {finish.error or 'did not get to the end'}")

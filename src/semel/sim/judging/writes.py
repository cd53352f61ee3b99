"""Did every record that was acknowledged stay, once, in its place?"""

from __future__ import annotations

from collections.abc import Iterator

from semel.sim.history import NO_OFFSET, Send
from semel.sim.judging.anomalies import Anomaly, Kind
from semel.sim.judging.facts import Facts

VIEWS = {True: "committed data", False: "everything"}


def lost_writes(facts: Facts) -> Iterator[Anomaly]:
    """Acknowledged, and nobody reads it: below the last offset that was read it is lost, else it is unseen, if
    somebody has read to the end. Each value is told of once, although both kinds of readers may miss it."""
    told: set[int] = set()
    committed = facts.views[True].seen
    for is_committed, view in facts.views.items():
        for send in facts.due(is_committed):
            if send.value in view.seen or send.value in committed or send.value in told:
                continue
            last = view.last_polled.get(send.place, NO_OFFSET)
            if send.offset != NO_OFFSET and send.offset < last:
                reader = f"readers of {VIEWS[is_committed]} got to offset {last}"
                kind = Kind.LOST_WRITE
            elif send.place in view.finished:
                reader = f"readers of {VIEWS[is_committed]} were at the end"
                kind = Kind.UNSEEN
            else:
                continue
            told.add(send.value)
            text = f"{named(send)} was acknowledged{_at(send)}; {reader} and never saw it"
            yield Anomaly(kind, text, is_allowed=not _waits_for_all(facts, send))


def duplicates(facts: Facts) -> Iterator[Anomaly]:
    for value, stands in facts.copies.items():
        send = facts.sends.get(value)
        places = " and ".join(f"offset {offset} of {place}" for place, offset in sorted(stands))
        who = f"{value}" if send is None else named(send)
        yield Anomaly(Kind.DUPLICATE, f"{who} stands at {places}", is_allowed=not _is_idempotent(facts, send))


def inconsistent_offsets(facts: Facts) -> Iterator[Anomaly]:
    for (place, offset), values in facts.conflicts.items():
        found = " and ".join(str(value) for value in sorted(values))
        yield Anomaly(Kind.INCONSISTENT_OFFSET, f"offset {offset} of {place} holds {found}")


def phantoms(facts: Facts) -> Iterator[Anomaly]:
    for value, (place, offset) in facts.stands.items():
        if value not in facts.sends:
            yield Anomaly(Kind.PHANTOM, f"{value} was read at offset {offset} of {place}, but nobody has sent it")


def unplaced(facts: Facts) -> Iterator[Anomaly]:
    """A broker remembers the last five batches of a producer, and so can say where a repeated one stands."""
    for send in facts.sends.values():
        if send.is_ok and send.offset == NO_OFFSET and _waits_for_all(facts, send):
            text = f"{named(send)} was acknowledged, but the broker could not say at which offset"
            yield Anomaly(Kind.UNPLACED, text, is_allowed=not _is_idempotent(facts, send))


def named(send: Send) -> str:
    return f"{send.value} (sent by {send.process} to {send.place} at {send.began_ms} ms)"


def _at(send: Send) -> str:
    return "" if send.offset == NO_OFFSET else f" at offset {send.offset}"


def _waits_for_all(facts: Facts, send: Send) -> bool:
    client = facts.client(send.process)
    return client is None or client.waits_for_all


def _is_idempotent(facts: Facts, send: Send | None) -> bool:
    client = None if send is None else facts.client(send.process)
    return client is None or client.is_idempotent

"""Was every record handled: by groups at least once, and by consume-transform-produce exactly once?"""

from __future__ import annotations

from collections.abc import Iterator

from semel.sim.history import NO_VALUE, Send
from semel.sim.judging.anomalies import Anomaly, Kind
from semel.sim.judging.facts import Facts

PIPELINE = "pipeline"
"""The role of clients that write one record for each that they read."""


def consumption(facts: Facts) -> Iterator[Anomaly]:
    yield from _repeated(facts)
    groups = {
        finish.process for finish in facts.finishes if finish.is_ok and finish.process not in facts.history.clients
    }
    for group in sorted(groups):
        members = {client.name for client in facts.history.clients.values() if client.group == group}
        is_pipeline = any(facts.history.clients[member].role == PIPELINE for member in members)
        places = {finish.place: finish.reads_committed for finish in facts.finishes if finish.process == group}
        handled = _outputs(facts, members) if is_pipeline else _read_by(facts, members)
        yield from _unhandled(facts, group, places, handled, is_pipeline)


def _repeated(facts: Facts) -> Iterator[Anomaly]:
    """Each group has results of its own."""
    visible = facts.views[True].seen
    first: dict[tuple[str | None, int], Send] = {}
    for send in facts.sends.values():
        if send.source == NO_VALUE or send.value not in visible:
            continue
        client = facts.client(send.process)
        other = first.setdefault((None if client is None else client.group, send.source), send)
        if other is not send:
            text = (
                f"{send.source} was read and became {other.value} (by {other.process}) and "
                f"{send.value} (by {send.process}); both can be read"
            )
            yield Anomaly(
                Kind.REPEATED_CONSUMPTION, text, is_allowed=client is not None and client.transactional_id is None
            )


def _outputs(facts: Facts, members: set[str]) -> set[int]:
    visible = facts.views[True].seen
    return {send.source for send in facts.sends.values() if send.process in members and send.value in visible}


def _read_by(facts: Facts, members: set[str]) -> set[int]:
    found: set[int] = set()
    for poll in facts.polls:
        if poll.process in members:
            for flat in poll.read.values():
                found.update(flat[1::2])
    return found


def _unhandled(
    facts: Facts, group: str, places: dict[str, bool], handled: set[int], is_pipeline: bool
) -> Iterator[Anomaly]:
    """A place counts if the group was at its end; the results of a pipeline count if they were read to the end.
    Members that wait for nobody may lose what they read."""
    if is_pipeline and any(send.place not in facts.views[True].finished for send in _results(facts, group)):
        return
    is_careless = any(client.group == group and not client.waits_for_all for client in facts.history.clients.values())
    for place, reads_committed in places.items():
        for offset in facts.views[reads_committed].known.get(place, []):
            value = facts.at[place][offset]
            if value not in handled:
                what = "none of its results can be read" if is_pipeline else "no member got it"
                text = f"{value} at offset {offset} of {place}: group {group} was at the end, but {what}"
                yield Anomaly(Kind.LOST_CONSUMPTION, text, is_allowed=is_careless)


def _results(facts: Facts, group: str) -> Iterator[Send]:
    for send in facts.sends.values():
        client = facts.client(send.process)
        if client is not None and client.group == group:
            yield send

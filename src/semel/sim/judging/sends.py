"""Do the records of one producer stand in the order in which it sent them?"""

from __future__ import annotations

from collections.abc import Iterator

from semel.sim.history import NO_OFFSET, NO_TRANSACTION, Send
from semel.sim.judging.anomalies import Anomaly, Kind
from semel.sim.judging.facts import Facts
from semel.sim.judging.writes import named


def out_of_order(facts: Facts) -> Iterator[Anomaly]:
    """Sends are in the order in which they were begun. Those that failed, or of which nobody knows, do not count."""
    last_of: dict[tuple[str, str], Send] = {}
    for send in facts.sends.values():
        if not send.is_ok or send.offset == NO_OFFSET:
            continue
        last = last_of.get((send.process, send.place))
        last_of[send.process, send.place] = send
        if last is None:
            continue
        is_inside = send.transaction != NO_TRANSACTION and send.transaction == last.transaction
        if send.offset <= last.offset:
            client = facts.client(send.process)
            kind = Kind.INSIDE_SEND_BACK if is_inside else Kind.SEND_BACK
            text = f"{named(send)} stands at {send.offset}, {last.value}, which it sent before, at {last.offset}"
            yield Anomaly(kind, text, is_allowed=client is not None and not client.is_idempotent)
        elif is_inside:
            yield from _others_between(facts, last, send)


def _others_between(facts: Facts, last: Send, send: Send) -> Iterator[Anomaly]:
    if send.offset == last.offset + 1:
        return
    other = facts.views[False].first_between(send.place, last.offset, send.offset)
    if other is not None:
        text = f"between {last.value} and {send.value} of transaction {send.transaction} of {send.process} stands "
        yield Anomaly(Kind.INSIDE_SEND_SKIP, f"{text}{facts.at[send.place][other]}", is_allowed=True)

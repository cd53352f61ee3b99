"""Are transactions all or nothing, seen only when committed, and only by the newest producer of an id?"""

from __future__ import annotations

from collections.abc import Iterator

from semel.sim.history import Outcome
from semel.sim.judging.anomalies import Anomaly, Kind
from semel.sim.judging.facts import NEVER, Facts, Fate, Transaction
from semel.sim.judging.writes import named


def aborted_reads(facts: Facts) -> Iterator[Anomaly]:
    """A transaction that nobody asked to commit counts as aborted, whether or not that was asked for: nothing but a
    commit shows it. A record that was certainly not sent must not be seen either, by anybody."""
    for is_committed, view in facts.views.items():
        for value, poll in view.seen.items():
            send = facts.sends.get(value)
            if send is None:
                continue
            if send.outcome is Outcome.FAIL:
                text = f"{named(send)} failed, but {poll.process} read it at {poll.ended_ms} ms"
            elif is_committed and facts.fate_of(send) is Fate.ABORTED:
                text = (
                    f"{named(send)} was in transaction {send.transaction}, which was never committed, "
                    f"but {poll.process} read it at {poll.ended_ms} ms"
                )
            else:
                continue
            yield Anomaly(Kind.ABORTED_READ, text)


def early_reads(facts: Facts) -> Iterator[Anomaly]:
    """By the poll that ended first: if it was late enough, so were all others."""
    for value, poll in facts.views[True].seen.items():
        send = facts.sends.get(value)
        transaction = None if send is None else facts.transactions.get(send.transaction)
        if send is None or transaction is None or transaction.asked == NEVER:
            continue
        if poll.ended < transaction.asked:
            text = (
                f"{named(send)} was read by {poll.process} at {poll.ended_ms} ms, "
                f"but to commit transaction {transaction.number} was not asked for before {_asked_ms(transaction)} ms"
            )
            yield Anomaly(Kind.EARLY_READ, text)


def _asked_ms(transaction: Transaction) -> int:
    return min(end.began_ms for end in transaction.ends if end.is_commit)


def torn(facts: Facts) -> Iterator[Anomaly]:
    """When everything that can be read was read: all records of a transaction are there, or none."""
    view = facts.views[True]
    for number, transaction in facts.transactions.items():
        if facts.fates[number] is Fate.ABORTED:
            continue
        sends = [
            send
            for send in transaction.sends
            if send.outcome is not Outcome.FAIL and (send.place in view.finished or send.value in view.seen)
        ]
        missing = [send for send in sends if send.value not in view.seen]
        if missing and len(missing) < len(sends):
            text = (
                f"of transaction {number} of {transaction.process} {len(sends) - len(missing)} of {len(sends)} records "
                f"can be read, but not {named(missing[0])}"
            )
            yield Anomaly(Kind.TORN, text)


def unfenced(facts: Facts) -> Iterator[Anomaly]:
    """Who has taken over an id before the commit was asked for, has ended the other's transaction. One in which nothing
    was written is no matter for the broker."""
    takeovers: dict[str, list[tuple[int, int, str]]] = {}
    for init in facts.inits:
        client = facts.client(init.process)
        if init.is_ok and client is not None and client.transactional_id is not None:
            takeovers.setdefault(client.transactional_id, []).append((init.began, init.ended, init.process))
    own_began = {process: began for found in takeovers.values() for began, _, process in found}
    for transaction in facts.transactions.values():
        client = facts.client(transaction.process)
        if client is None or client.transactional_id is None or not any(send.is_ok for send in transaction.sends):
            continue
        commits = [end for end in transaction.ends if end.is_commit and end.is_ok]
        for began, ended, process in takeovers.get(client.transactional_id, []):
            is_newer = process != transaction.process and began > own_began.get(transaction.process, NEVER)
            late = [end for end in commits if is_newer and ended < end.began]
            if late and ended < transaction.asked:
                text = (
                    f"{transaction.process} committed transaction {transaction.number} at {late[0].ended_ms} ms, "
                    f"although {process} had taken over {client.transactional_id!r} before"
                )
                yield Anomaly(Kind.UNFENCED, text)
                break

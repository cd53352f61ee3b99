"""Every transaction ends within the time that it may take, whatever the wall clock of its node says."""

from __future__ import annotations

from collections.abc import Callable

from semel.coordinator.txn.state import TransactionState
from semel.coordinator.txn.transactions import Transaction
from semel.sim.world.findings import Findings

SLACK_S = 1.5
"""The coordinator looks twice a second, and we look at it now and then."""


class Overdue:
    """Transactions that are open, by the time that the node had to end them: not while it is away or frozen, or its
    disk may fail, and not while too few replicas are in sync for anything to be decided. After a start they have their
    whole time once more: a clock may have been set back meanwhile."""

    def __init__(self, findings: Findings, now_s: Callable[[], float], may_act: Callable[[], bool]) -> None:
        self._findings = findings
        self._now_s = now_s
        self._may_act = may_act
        self._looked_s = now_s()
        self._could_act = False
        self._had_s = 0.0
        self._since_s: dict[tuple[str, int, int, int], float] = {}

    def restarted(self) -> None:
        self._since_s.clear()

    def look(self, transactions: list[Transaction], is_undecidable: Callable[[Transaction], bool]) -> None:
        """`is_undecidable`: whether the coordinator cannot write now that one ends."""
        now_s, may_act = self._now_s(), self._may_act()
        if self._could_act and may_act:
            self._had_s += now_s - self._looked_s
        self._looked_s, self._could_act = now_s, may_act
        since_s = {}
        for one in transactions:
            if one.state != TransactionState.ONGOING:
                continue
            key = (one.transactional_id, one.producer_id, one.epoch, one.started_ms)
            since_s[key] = self._had_s if is_undecidable(one) else self._since_s.get(key, self._had_s)
            open_s = self._had_s - since_s[key]
            if open_s > one.timeout_ms / 1000 + SLACK_S:
                text = f"that of {one.transactional_id} may take {one.timeout_ms} ms and is open for {open_s:.3f} s"
                self._findings.wrong("transaction overdue", text)
                since_s[key] = self._had_s
        self._since_s = since_s

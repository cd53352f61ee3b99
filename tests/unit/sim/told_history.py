"""Histories told by hand: each call is one operation, which begins and ends at once unless it says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from semel.sim.history import (
    NO_OFFSET,
    NO_TRANSACTION,
    NO_VALUE,
    Client,
    End,
    Finish,
    History,
    Init,
    Outcome,
    Poll,
    Send,
)
from semel.sim.judging.anomalies import Kind
from semel.sim.judging.report import Report, judge

Read = Mapping[str, Sequence[tuple[int, int]]]


class Told(History):
    def __init__(self) -> None:
        super().__init__()
        self._ms = 0

    def send(
        self,
        value: int,
        offset: int = NO_OFFSET,
        *,
        process: str = "p",
        place: str = "a-0",
        transaction: int = NO_TRANSACTION,
        source: int = NO_VALUE,
        outcome: Outcome = Outcome.OK,
    ) -> Send:
        send = self.begin(Send(process=process, place=place, value=value, transaction=transaction, source=source))
        send.offset = offset
        self.end(send, outcome)
        return send

    def poll(self, read: Read, *, process: str = "c", committed: bool = False) -> Poll:
        poll = self.begin(Poll(process=process, reads_committed=committed))
        self.polled(poll, read)
        return poll

    def commit(self, transaction: int, outcome: Outcome = Outcome.OK, *, process: str = "p") -> None:
        self.end(self.begin(End(process=process, transaction=transaction, is_commit=True)), outcome)

    def abort(self, transaction: int, outcome: Outcome = Outcome.OK, *, process: str = "p") -> None:
        self.end(self.begin(End(process=process, transaction=transaction, is_commit=False)), outcome)

    def init(self, process: str, outcome: Outcome = Outcome.OK) -> None:
        self.end(self.begin(Init(process=process)), outcome)

    def finish(
        self, process: str, place: str = "a-0", outcome: Outcome = Outcome.OK, *, committed: bool = False
    ) -> None:
        if process not in self.clients and not process.startswith("group"):
            self.add_client(Client(process, "reader", reads_committed=committed))
        self.end(self.begin(Finish(process=process, place=place, reads_committed=committed)), outcome)

    def read_to_end(self, read: Read, *, process: str = "c", committed: bool = False) -> None:
        """A reader that begins at the start and sees all there is."""
        self.move(process, dict.fromkeys(read, 0))
        self.poll({place: records for place, records in read.items() if records}, process=process, committed=committed)
        for place in read:
            self.finish(process, place, committed=committed)

    def judged(self) -> Report:
        return judge(self)

    def found(self) -> set[Kind]:
        return set(self.judged().findings)

"""A program with clients of another library, which works beside ours and has what it does and sees written down.

It is a process that says lines on its standard output: words, with tabs between them. Some are questions and get one
line as an answer on its standard input. So a beginning is in the history before the act, an end after it, and what
"before" means there holds for everybody.

questions (answer)
    over PHASE (yes or no)                    whether this phase of the work is over: writing, piping
    sends PROCESS TRANSACTION PLACE[=SOURCE].. (TRANSACTION VALUE ..)
                                              is about to send; TRANSACTION is a number, - for none, or new
    end PROCESS TRANSACTION commit|abort (ok) is about to end a transaction
    init PROCESS (ok)                         is about to take over its transactional id
told
    client NAME ROLE TRANSACTIONAL_ID|- GROUP|-
    sent VALUE OFFSET                         unsent VALUE ERROR
    ended TRANSACTION ok|fail|info ERROR      inited PROCESS ok|info ERROR
    polled PROCESS PLACE=OFFSET:VALUE,..  ..  move PROCESS PLACE=OFFSET ..
    complaint TEXT                            what should not have happened to a client
    hung                                      a call of the library does not return; its client is given up
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from semel.sim.history import NO_TRANSACTION, NO_VALUE, Client, End, Init, Outcome, Poll, Send
from semel.sim.workload.access import Access

_LINE_BYTES = 1 << 24
_NOTHING = "-"
_NEW = "new"


class ForeignProgram:
    """`is_over` says of a phase whether it is over. What the program prints on its standard error goes to `log`."""

    def __init__(
        self, access: Access, name: str, command: Sequence[str], is_over: Callable[[str], bool], log: Path
    ) -> None:
        self.name = name
        self.complaints: list[str] = []
        self.transactional_ids: set[str] = set()
        self._access = access
        self._history = access.history
        self._command = list(command)
        self._is_over = is_over
        self._log = log
        self._open_sends: dict[int, Send] = {}
        self._open_ends: dict[int, End] = {}
        self._open_inits: dict[str, Init] = {}

    async def run(self) -> None:
        """Until it ends by itself, which it does when all phases are over."""
        with self._log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LINE_BYTES,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                verb, *words = line.decode().rstrip("\n").split("\t")
                answer = self._said(verb, words)
                if answer is not None:
                    process.stdin.write(f"{answer}\n".encode())
            code = await process.wait()
            if code:
                raise AssertionError(f"{self.name} ended with {code}:\n{self._log.read_text()[-4000:]}")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _said(self, verb: str, words: list[str]) -> str | None:
        handlers: dict[str, Callable[..., str | None]] = {
            "over": lambda phase: "yes" if self._is_over(phase) else "no",
            "sends": self._begin_sends,
            "end": self._begin_end,
            "init": self._begin_init,
            "client": self._add_client,
            "sent": self._end_send,
            "unsent": self._lose_send,
            "ended": self._end_end,
            "inited": self._end_init,
            "polled": self._polled,
            "move": self._move,
            "complaint": self.complaints.append,
            "hung": self._hung,
        }
        return handlers[verb](*words)

    # -- questions

    def _begin_sends(self, process: str, transaction: str, *targets: str) -> str:
        history = self._history
        number = NO_TRANSACTION
        if transaction != _NOTHING:
            number = history.next_transaction() if transaction == _NEW else int(transaction)
        values = []
        for target in targets:
            place, _, source = target.partition("=")
            value = history.next_value()
            self._open_sends[value] = history.begin(
                Send(
                    process=process,
                    place=place,
                    value=value,
                    transaction=number,
                    source=int(source) if source else NO_VALUE,
                )
            )
            values.append(str(value))
        return "\t".join([str(number), *values])

    def _begin_end(self, process: str, transaction: str, kind: str) -> str:
        number = int(transaction)
        end = End(process=process, transaction=number, is_commit=kind == "commit")
        self._open_ends[number] = self._history.begin(end)
        return "ok"

    def _begin_init(self, process: str) -> str:
        self._open_inits[process] = self._history.begin(Init(process=process))
        return "ok"

    # -- told

    def _add_client(self, name: str, role: str, transactional_id: str, group: str) -> None:
        client = Client(
            name,
            role,
            reads_committed=group != _NOTHING,
            transactional_id=None if transactional_id == _NOTHING else transactional_id,
            group=None if group == _NOTHING else group,
        )
        if client.transactional_id is not None:
            self.transactional_ids.add(client.transactional_id)
        self._history.add_client(client)

    def _end_send(self, value: str, offset: str) -> None:
        self._access.counts["written"] += 1
        self._access.counts[f"written by {self.name}"] += 1
        self._history.sent(self._open_sends.pop(int(value)), int(offset))

    def _lose_send(self, value: str, error: str) -> None:
        self._history.end(self._open_sends.pop(int(value)), Outcome.INFO, error)

    def _end_end(self, transaction: str, outcome: str, error: str) -> None:
        end = self._open_ends.pop(int(transaction))
        self._history.end(end, Outcome(outcome), error)
        if end.is_ok:
            what = "committed" if end.is_commit else "aborted"
            self._access.counts[what] += 1
            self._access.counts[f"{what} by {self.name}"] += 1

    def _end_init(self, process: str, outcome: str, error: str) -> None:
        self._history.end(self._open_inits.pop(process), Outcome(outcome), error)

    def _hung(self) -> None:
        self._access.counts[f"hung calls of {self.name}"] += 1

    def _polled(self, process: str, *places: str) -> None:
        poll = self._history.begin(Poll(process=process, reads_committed=True))
        for text in places:
            place, _, records = text.partition("=")
            numbers = array("q", [int(number) for record in records.split(",") for number in record.split(":")])
            poll.read[place] = numbers
            self._access.counts["read"] += len(numbers) // 2
        self._history.ok(poll)

    def _move(self, process: str, *places: str) -> None:
        moved = (text.partition("=") for text in places)
        self._history.move(process, {place: int(offset) for place, _, offset in moved})

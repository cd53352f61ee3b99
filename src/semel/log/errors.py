"""What can go wrong with a log, split by whose fault it is.

`Refused` is the peer's: it becomes an error code on the wire and leaves the log as it was. `CorruptSegment` is the
disk's: the range is not served, everything else goes on. `BrokenLog` is ours or the disk's last word: the node stops.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.log.types import Offset
from semel.wire.errors import ErrorCode

_LONGEST_TEXT = 1000


class Refused(Exception):
    """The request is answered with `code`; `text` says what was wrong and what is allowed."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(code, text)  # as given, so that it can be pickled and come back from another process
        self.code = code
        # It may quote what a client has sent, and an answer has no room for a text of more than 32,767 bytes.
        self.text = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}... ({len(text)} characters)"

    def __str__(self) -> str:
        return f"{self.code.name}: {self.text}"


class RecordRefusal(NamedTuple):
    """One record that is the reason why its batch was refused (KIP-467)."""

    batch_index: int
    text: str


class RecordsRefused(Refused):
    """A batch is refused because of some of its records: the others could be written in another batch."""

    def __init__(self, code: ErrorCode, text: str, records: list[RecordRefusal]) -> None:
        super().__init__(code, text)
        self.args = (code, text, records)
        self.records = records


class CorruptSegment(Exception):
    """Bytes on disk are not what was written. Names the file, the position and the first offset concerned."""

    def __init__(self, path: str, position: int, offset: Offset, what: str) -> None:
        super().__init__(path, position, offset, what)
        self.path = path
        self.position = position
        self.offset = offset
        self.what = what

    def __str__(self) -> str:
        return f"{self.path} is corrupt at byte {self.position} (offset {self.offset}): {self.what}"


class NoRoom(OSError):
    """A disk without room could not take the next version of a small file. The old one is there: it is tried again."""


class BrokenLog(Exception):
    """An invariant of the log does not hold, or the disk failed in a way that nothing can be promised after."""


class DataMissing(BrokenLog):
    """Not all that a log held is there. It is not opened, and nothing of it is changed, until the files are restored or
    the loss is accepted. `durable_end`: below it everything was there, and was made durable when this was found out."""

    def __init__(self, what: str, durable_end: Offset | None = None, advice: str = "") -> None:
        super().__init__(what, durable_end, advice)
        self.what = what
        self.durable_end = durable_end
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.what}; {self.advice}" if self.advice else self.what

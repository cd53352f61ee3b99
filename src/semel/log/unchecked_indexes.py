"""Indexes of a sealed segment that nobody has used since the start. Their lengths fit; their checksums are held against
what was noted of them before they are used for the first time, and if they do not fit, they are made anew.

Off the loop where a reader can wait (`warm`), at once where it cannot (`check_now`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from semel.log.errors import CorruptSegment
from semel.log.inventory import FileState, SegmentFiles
from semel.log.listing import measured, measured_now
from semel.log.segment import Segment
from semel.log.trusted_segments import rebuild_indexes
from semel.log.types import Offset

logger = logging.getLogger("semel.log")

_WARM_BYTES = 1 << 20


class UncheckedIndexes:
    """`segment.unchecked` until it is done. `rebuilt` is told when the indexes are not those that were noted."""

    def __init__(
        self,
        segment: Segment,
        noted: SegmentFiles,
        following_base: Offset,
        index_interval_bytes: int,
        rebuilt: Callable[[], None],
    ) -> None:
        self.path = segment.path
        self._segment = segment
        self._noted = noted
        self._following_base = following_base
        self._index_interval_bytes = index_interval_bytes
        self._rebuilt = rebuilt

    async def warm(self, position: int, length: int) -> None:
        """Checks, and brings into memory what a reader of the offset `position` will get. Damage of the log itself is
        for whoever reads it then."""
        segment = self._segment
        try:
            await self.check()
            located = segment.locate(position)
            if located is not None:
                await segment.file.warm(located.position, min(length, _WARM_BYTES))
        except CorruptSegment:
            logger.debug("%s cannot be warmed at offset %d: it is damaged", self.path, position)
        except ValueError:
            if not segment.is_removed:  # else its files were closed meanwhile
                raise

    async def check(self) -> None:
        segment = self._segment
        await segment.offset_index.warm()
        await segment.time_index.warm()
        self._judge([await measured(segment.offset_index), await measured(segment.time_index)])

    def check_now(self) -> None:
        self._judge([measured_now(self._segment.offset_index), measured_now(self._segment.time_index)])

    def _judge(self, found: list[FileState | None]) -> None:
        segment = self._segment
        if segment.unchecked is not self:
            return  # somebody else was quicker
        segment.unchecked = None
        if found != [self._noted.offset_index, self._noted.time_index]:
            tell_made_anew(segment.offset_index.path, "its indexes are")
            rebuild_indexes(segment, self._following_base, self._index_interval_bytes)
            self._rebuilt()


def tell_made_anew(path: str, what: str) -> None:
    logger.error("%s: not as it was when it was written: %s made anew from the log", path, what)

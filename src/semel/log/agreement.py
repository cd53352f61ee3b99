"""Holds the files that a start finds against the inventory of the partition.

What cannot be derived from the log is the log itself: if a segment is not there, or not as long as it was, data are
missing. Everything else is told once and made anew. Without an inventory that counts, everything fits.
"""

from __future__ import annotations

import logging
from itertools import pairwise

from semel.host.api import Disk
from semel.log.epochs import FILE_NAME as EPOCHS_FILE
from semel.log.epochs import LeaderEpochs
from semel.log.errors import DataMissing
from semel.log.inventory import Inventory, SegmentFiles, state_of
from semel.log.listing import measured_now
from semel.log.log import Log
from semel.log.segment import LOG_SUFFIX, Segment
from semel.log.snapshots import SNAPSHOT_SUFFIX, remove_snapshot, snapshot_path, window_path
from semel.log.types import Epoch, Offset
from semel.log.unchecked_indexes import UncheckedIndexes, tell_made_anew

logger = logging.getLogger("semel.log")


class Agreement:
    def __init__(self, disk: Disk, directory: str, inventory: Inventory | None, *, was_clean: bool) -> None:
        self._disk = disk
        self._directory = directory
        self._inventory = inventory
        self._was_clean = was_clean
        self._found_epochs = LeaderEpochs()
        self._written_epochs: list[tuple[Epoch, Offset]] | None = None
        self.end_offset = 0 if inventory is None else inventory.end_offset
        """Everything below was durable."""

    @property
    def grown(self) -> Offset | None:
        """The segment that has been written to since it was listed, if there is one."""
        return None if self._inventory is None or self._was_clean else self._inventory.active

    def _noted(self, segment: Segment) -> SegmentFiles | None:
        """None: nothing is known of its files, or they have changed since."""
        if self._inventory is None or segment.base_offset == self.grown:
            return None
        return self._inventory.segments.get(segment.base_offset)

    # -- what has to be there

    def check_segments_are_there(self, bases: list[Offset], start_offset: Offset) -> None:
        for base, noted in sorted(self._inventory.segments.items()) if self._inventory is not None else ():
            if base not in bases and noted.next_offset > max(start_offset, base):
                what = f"{self._directory}/{base:020d}{LOG_SUFFIX} is missing"
                raise DataMissing(f"{what}, with offsets {base} to {noted.next_offset - 1}")

    def check_lengths(self, segments: list[Segment]) -> None:
        for segment in segments:
            noted = None if self._inventory is None else self._inventory.segments.get(segment.base_offset)
            if noted is None:
                continue
            has_grown = segment.base_offset == self.grown
            if segment.size_bytes < noted.log_bytes or (segment.size_bytes > noted.log_bytes and not has_grown):
                raise DataMissing(f"{segment.path} has {segment.size_bytes} bytes, but it had {noted.log_bytes}")
        for segment, following in pairwise(segments):
            noted = self._noted(segment)
            if noted is not None and noted.next_offset < following.base_offset:
                missing = f"offsets {noted.next_offset} to {following.base_offset - 1}"
                raise DataMissing(f"{missing} are missing between {segment.path} and {following.path}")

    # -- what can be made anew

    def fits_indexes(self, segment: Segment) -> bool:
        """By their lengths; those of the active segment, which are in memory, also by their checksums."""
        noted = self._noted(segment)
        if noted is None:
            return True
        indexes = (segment.offset_index, segment.time_index)
        if self._inventory is not None and segment.base_offset == self._inventory.active:
            fits = [measured_now(index) for index in indexes] == [noted.offset_index, noted.time_index]
        else:
            found = [index.size_bytes if index.is_there else None for index in indexes]
            fits = found == [one and one.size_bytes for one in (noted.offset_index, noted.time_index)]
        if not fits:
            tell_made_anew(segment.offset_index.path, "the indexes of this segment are")
        return fits

    def watch_indexes(self, segment: Segment, following_base: Offset | None, index_interval_bytes: int) -> None:
        """Their checksums are compared when they are first used."""
        noted = self._noted(segment)
        if noted is not None and following_base is not None:
            segment.unchecked = UncheckedIndexes(
                segment, noted, following_base, index_interval_bytes, lambda: self.made_anew(segment)
            )

    def fits_aborted(self, segment: Segment) -> bool:
        noted, index = self._noted(segment), segment.aborted_index
        fits = index.is_whole if noted is None else measured_now(index) == noted.aborted_index
        if not fits:
            tell_made_anew(index.path, "it is")
        return fits

    def made_anew(self, segment: Segment) -> None:
        """What was noted of a segment's indexes is no longer so."""
        if self._inventory is not None:
            self._inventory.segments.pop(segment.base_offset, None)

    def fits_snapshot(self, offset: Offset) -> bool:
        """One that does not is removed: a later start would believe it if it were no longer listed."""
        for path in (snapshot_path(self._directory, offset), window_path(self._directory, offset)):
            noted = None if self._inventory is None else self._inventory.files.get(path.rpartition("/")[2])
            if noted is not None and not (self._disk.exists(path) and state_of(self._disk.read_file(path)) == noted):
                tell_made_anew(path, "the producers are")
                remove_snapshot(self._disk, self._directory, offset)
                return False
        return True

    def epochs(self, found: LeaderEpochs, trusted: list[Segment]) -> tuple[LeaderEpochs, list[Segment]]:
        """The epochs that are known, and those of the trusted segments whose batches are to be asked for more."""
        self._found_epochs = LeaderEpochs(list(found.entries))
        if self._inventory is None:
            return found, [] if found.entries else trusted
        if found.entries == self._inventory.epochs:
            return found, []
        known = LeaderEpochs(list(self._inventory.epochs))
        # The file may be newer than the inventory, if the node died between the two.
        return known, [] if self._was_clean else [segment for segment in trusted if self._noted(segment) is None]

    def epochs_written(self, epochs: LeaderEpochs) -> None:
        """The start itself has written the file: it holds these now."""
        self._written_epochs = list(epochs.entries)

    def check_epochs(self, log: Log) -> None:
        """Tells if the file was not what it should have been. It is written anew with the next segment."""
        found = self._found_epochs
        if self._inventory is None or found.entries == self._inventory.epochs:
            return
        was_found = bool(found.entries)
        found.truncate_end(log.end_offset)
        found.truncate_start(log.start_offset)
        if self._was_clean or not was_found or found.entries != log.epochs.entries[: len(found.entries)]:
            tell_made_anew(f"{self._directory}/{EPOCHS_FILE}", "it is")
        log.epochs.is_dirty = True

    def hand_over(self, log: Log) -> None:
        """From now on the log keeps the inventory."""
        written = self._written_epochs
        if self._inventory is None:
            log.inventory.epochs = list(self._found_epochs.entries) if written is None else written
            return
        log.inventory = inventory = self._inventory
        if written is not None:
            inventory.epochs = written
        bases = {segment.base_offset for segment in log.segments}
        # The active segment is written to again: what was noted of it was true for this start.
        known = inventory.segments.items()
        inventory.segments = {base: one for base, one in known if base in bases and base != inventory.active}
        inventory.active = None
        for name in list(inventory.files):
            if not self._disk.exists(f"{self._directory}/{name}"):
                del inventory.files[name]
                if name.endswith(SNAPSHOT_SUFFIX) and int(name[:20]) <= log.end_offset:
                    logger.error("%s/%s is missing: producers are read from the log", self._directory, name)

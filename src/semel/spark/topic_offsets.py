"""The driver's view of what is read: partitions of the topics, their ends, offsets by time; asked of the cluster anew
for every batch, so that new partitions are seen. Answers that cannot be right yet are asked for again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from semel.client.admin.outcome import AdminErrors
from semel.client.errors import BadSetting, RetriableError, SemelError, UnknownTopic
from semel.client.metadata import Topic, TopicPartition
from semel.spark.offsets import EARLIEST, LATEST, Offsets
from semel.spark.source_options import ByTime, End, NoMatch, Partitions, Pattern, SourceOptions, Topics, Where
from semel.sync import Admin
from semel.wire.schema import NO_UUID

T = TypeVar("T")

logger = logging.getLogger("semel.spark")

_FIRST_CONTACT_MS = 3_000
"""Unless kafka.bootstrap.timeout.ms says so. A cluster that has answered before is waited for longer."""


class TopicOffsets:
    def __init__(
        self,
        options: SourceOptions,
        *,
        connect: Callable[..., Admin] = Admin,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._connect = connect
        self._sleep = sleep
        self._admin: Admin | None = None
        self._was_reached = False
        self._topic_ids: dict[str, bytes] = {}
        self.recreated: set[str] = set()
        """Topics that were deleted and created again since they were first seen here."""

    # -- partitions

    def partitions(
        self, known: Iterable[TopicPartition] = (), *, may_be_missing: bool = False
    ) -> frozenset[TopicPartition]:
        """All that the options ask for, as of now. If one of the known ones is missing, it is looked for again: a node
        that has just started may not know it yet. What was never known must be there, unless it may be missing."""
        known = frozenset(known)
        found = self._found_partitions(known, may_be_missing)
        for _ in range(self._options.fetch_attempts - 1):
            if known <= found:
                break
            self._pause()
            found = self._found_partitions(known, may_be_missing)
        return found

    def _found_partitions(self, known: frozenset[TopicPartition], may_be_missing: bool) -> frozenset[TopicPartition]:
        topics = self._tried(lambda: self._topics({place.topic for place in known}, may_be_missing))
        for name, topic in topics.items():
            before = self._topic_ids.setdefault(name, topic.topic_id)
            if NO_UUID not in (before, topic.topic_id) and before != topic.topic_id:
                self.recreated.add(name)
                self._topic_ids[name] = topic.topic_id
        found = {TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions}
        strategy = self._options.strategy
        if isinstance(strategy, Partitions):
            missing = strategy.partitions - found - known
            if missing and not may_be_missing:
                raise UnknownTopic(f"assign: there is no {_names(missing)}")
            found &= strategy.partitions
        return frozenset(found)

    def _topics(self, known: set[str], may_be_missing: bool) -> Mapping[str, Topic]:
        strategy = self._options.strategy
        if isinstance(strategy, Pattern):
            topics = self._asked().list_topics()
            return {name: topic for name, topic in topics.items() if strategy.regex.search(name) and topic.partitions}
        names = strategy.names if isinstance(strategy, Topics) else {place.topic for place in strategy.partitions}
        try:
            return self._asked().describe_topics(sorted(names))
        except UnknownTopic:
            if may_be_missing or names <= known:
                return {}
            raise
        except AdminErrors as errors:
            for name, error in errors.errors.items():
                if not isinstance(error, UnknownTopic) or not (may_be_missing or name in known):
                    raise error from errors
            return errors.results

    # -- offsets

    def latest(self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int]) -> Offsets:
        """Where partitions end: with read_committed, at the last stable offset. An end before what was read already
        may be that of a leader who does not know better yet."""
        places = list(partitions)
        ends = self._listed(dict.fromkeys(places, LATEST))
        for _ in range(self._options.fetch_attempts - 1):
            behind = [place for place, end in ends.items() if end < known.get(place, 0)]
            if not behind:
                break
            logger.warning("%s: the end lies before what was read; asking again", _names(behind))
            self._pause()
            ends |= self._listed(dict.fromkeys(behind, LATEST))
        return ends

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._listed(dict.fromkeys(partitions, EARLIEST))

    def resolved(
        self, where: Where, partitions: frozenset[TopicPartition], ends: Mapping[TopicPartition, int] | None = None
    ) -> Offsets:
        """The offsets that an option stands for, of all these partitions. `ends` are the latest ones, if known."""
        if isinstance(where, ByTime):
            return self._by_time(where, partitions)
        if isinstance(where, End):
            offsets = dict.fromkeys(partitions, where.offset)
        else:
            _check_complete(where.option, where.offsets, partitions)
            offsets = where.offsets
        if ends is not None:
            offsets = {place: ends[place] if offset == LATEST else offset for place, offset in offsets.items()}
        found = self._listed({place: offset for place, offset in offsets.items() if offset in (EARLIEST, LATEST)})
        return offsets | found

    def _by_time(self, where: ByTime, partitions: frozenset[TopicPartition]) -> Offsets:
        if isinstance(where.times_ms, int):
            times_ms = dict.fromkeys(partitions, where.times_ms)
        else:
            _check_complete(where.option, where.times_ms, partitions)
            times_ms = where.times_ms
        found = self._listed(times_ms)
        without = [place for place, offset in found.items() if offset < 0]
        if without and where.no_match is NoMatch.ERROR:
            raise BadSetting(
                f"{where.option}: {_names(without)} has no record as young as {times_ms[without[0]]} ms since 1970; "
                "startingOffsetsByTimestampStrategy=latest would begin at its end"
            )
        return found | self._listed(dict.fromkeys(without, LATEST))

    def _listed(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        if not wanted:
            return {}
        level = self._options.isolation_level
        listed = self._tried(lambda: self._asked().list_offsets(dict(wanted), isolation_level=level))
        return {place: found.offset for place, found in listed.items()}

    # -- the group

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._asked().alter_group_offsets(self._options.group_id, offsets)

    # -- the connection

    def _asked(self) -> Admin:
        if self._admin is None:
            patience = {} if self._was_reached else {"bootstrap_timeout_ms": _FIRST_CONTACT_MS}
            self._admin = self._connect(**{**patience, **self._options.connection})
            self._was_reached = True
        return self._admin

    def _tried(self, ask: Callable[[], T]) -> T:
        """What may be gone the next time is tried again, as often as the options say. A missing topic is not, and a
        cluster that never answered here is probably another one than was meant."""
        for _ in range(self._options.fetch_attempts - 1):
            try:
                return ask()
            except SemelError as error:
                if not _may_pass(error) or not self._was_reached:
                    raise
                logger.warning("asking the cluster again after: %s", error)
            self._pause()
        return ask()

    def _pause(self) -> None:
        self._sleep(self._options.fetch_retry_ms / 1000)

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None


def _may_pass(error: SemelError) -> bool:
    if isinstance(error, AdminErrors):
        return all(_may_pass(one) for one in error.errors.values())
    return isinstance(error, RetriableError) and not isinstance(error, UnknownTopic)


def _check_complete(option: str, given: Mapping[TopicPartition, int], partitions: frozenset[TopicPartition]) -> None:
    """As in Spark's own source: an option by partition tells of every one."""
    missing, unknown = partitions - given.keys(), given.keys() - partitions
    if missing:
        raise BadSetting(f"{option}: {_names(missing)} is read but not given; -2 stands for earliest, -1 for latest")
    if unknown:
        raise BadSetting(f"{option}: {_names(unknown)} is given but not read")


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))

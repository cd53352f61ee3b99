"""What a node asks one leader for, and the session that the leader remembers of it (KIP-227). Sans I/O.

A request names only what has changed since the one before, so that a round costs what is new, however many partitions
there are. `changed` holds those; each is looked at once, when the next request is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from semel.replication.follower import Follower
from semel.replication.following import Position
from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import (
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    ForgottenTopic,
)

Key: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""

NO_SESSION = 0
FULL_EPOCH = 0
NO_SESSION_EPOCH = -1
_LARGEST_EPOCH = (1 << 31) - 1
# So that neither side works for long at one request: the others are named in the next ones.
_MOST_NAMED = 250


class Asked(NamedTuple):
    """Who was named in a session, with what."""

    follower: Follower
    position: Position


class Wanted(NamedTuple):
    """The part of a request that a lane decides."""

    session_id: int
    epoch: int
    topics: list[FetchRequestTopic]
    forgotten: list[ForgottenTopic]
    names_all: bool
    """Nothing is left for the next request."""


class FetchLane:
    """Of one leader. After `ask`, `answered` or `failed` must follow before the next."""

    def __init__(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.followers: dict[Key, Follower] = {}
        self.changed: dict[Key, None] = {}
        self.flushing: dict[Key, None] = {}
        """Those that will ask for something as soon as they are flushed."""
        self.aside: dict[Key, Asked] = {}
        """Those that are asked for by another request now."""
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
        self._asked: dict[Key, Asked] = {}
        self._most_named = _MOST_NAMED

    def add(self, key: Key, follower: Follower) -> None:
        self.followers[key] = follower
        self.note(key)

    def remove(self, key: Key, follower: Follower) -> None:
        if self.followers.get(key) is follower:
            del self.followers[key]
            self.note(key)

    def note(self, key: Key) -> None:
        """What this one wants may have changed."""
        self.changed[key] = None
        follower = self.followers.get(key)
        if follower is not None and follower.is_flushing:
            self.flushing[key] = None
        else:
            self.flushing.pop(key, None)

    @property
    def has_any(self) -> bool:
        """Whether a request would name anything, or the session goes on with something."""
        if any(key not in self.changed or self._still_asks(key) for key in self._asked):
            return True
        return next(self.newcomers(), None) is not None

    def _still_asks(self, key: Key) -> bool:
        """Whether one asks again for what it was refused: the session knows of it."""
        follower, asked = self.followers.get(key), self._asked[key]
        return follower is asked.follower and key not in self.aside and follower.position == asked.position

    def newcomers(self) -> Iterator[tuple[Key, Asked]]:
        """Those that want something which the session does not know."""
        for key in self.changed:
            follower = self.followers.get(key)
            position = None if follower is None or key in self.aside else follower.position
            if follower is not None and position is not None:
                asked = Asked(follower, position)
                if self._asked.get(key) != asked:
                    yield key, asked

    def ask(self, max_bytes: int) -> Wanted:
        """What the next request says. `max_bytes` is for each partition."""
        if self.epoch == FULL_EPOCH:
            self._asked = {}
            self.changed = dict.fromkeys(self.followers)
        named: dict[Key, Asked] = {}
        gone: list[Key] = []
        later: dict[Key, None] = {}
        changed = list(self.changed)
        for number, key in enumerate(changed):
            if len(named) == self._most_named:
                later.update(dict.fromkeys(changed[number:]))
                break
            follower = self.followers.get(key)
            position = None if follower is None or key in self.aside else follower.position
            if follower is None or position is None:
                if self._asked.pop(key, None) is not None:
                    gone.append(key)
                if key in self.aside:
                    later[key] = None
                continue
            asked = Asked(follower, position)
            if self._asked.get(key) != asked:
                named[key] = self._asked[key] = asked
        names_all = all(key in self.aside for key in later)
        self.changed = later
        return Wanted(self.session_id, self.epoch, request_topics(named, max_bytes), _forgotten(gone), names_all)

    def answered(self, response: FetchResponse) -> bool:
        """Takes note of an answer. False: it brought nothing but the session's end; ask again, for everything."""
        code = response.error_code
        if code != ErrorCode.NONE:
            if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            self.failed()
            return False
        if self.epoch == FULL_EPOCH:
            self.session_id = response.session_id
            has_session = response.session_id != NO_SESSION
            self.epoch = 1 if has_session else FULL_EPOCH
            # Without a session every request is the first one: it names all, or some would never be named.
            self._most_named = _MOST_NAMED if has_session else 1 << 31
        elif response.session_id == NO_SESSION:
            self.session_id = NO_SESSION
            self.failed()
        else:
            self.epoch = 1 if self.epoch == _LARGEST_EPOCH else self.epoch + 1
        return True

    def failed(self) -> None:
        """Nobody knows what the leader remembers: begin anew, and have it drop the session if it is still there."""
        self.epoch = FULL_EPOCH
        self._asked = {}
        self.changed = dict.fromkeys(self.followers)

    def answers(self, response: FetchResponse) -> list[tuple[Key, Asked, FetchResponsePartition]]:
        """What the answer says, with what was asked: before the next `ask`."""
        return pair(response, self._asked)


def pair(response: FetchResponse, asked: dict[Key, Asked]) -> list[tuple[Key, Asked, FetchResponsePartition]]:
    """Answers with what was asked; nobody looks at one that nobody asked for."""
    found: list[tuple[Key, Asked, FetchResponsePartition]] = []
    for topic in response.responses:
        for answer in topic.partitions:
            key = (topic.topic_id, answer.partition_index)
            if key in asked:
                found.append((key, asked[key], answer))
    return found


def request_topics(named: dict[Key, Asked], max_bytes: int) -> list[FetchRequestTopic]:
    topics: dict[bytes, list[FetchRequestPartition]] = {}
    for (topic_id, index), (_, position) in named.items():
        topics.setdefault(topic_id, []).append(
            FetchRequestPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=max_bytes,
            )
        )
    return [FetchRequestTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]


def _forgotten(gone: list[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in gone:
        topics.setdefault(topic_id, []).append(index)
    return [ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]

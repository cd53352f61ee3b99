"""The client's side of a fetch session (KIP-227): all partitions are named once, then only what has changed.

One per node. A session is begun by a request that names everything (epoch 0); the broker may give it an id. Each next
request has the next epoch and names what is new, what has moved, and what is to be forgotten. After any doubt the next
request names everything again, and ends the old session if there may still be one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from semel.wire.errors import ErrorCode
from semel.wire.spec.fetch import FetchRequestPartition, FetchRequestTopic, FetchResponse, ForgottenTopic

NO_SESSION = 0
FULL_EPOCH = 0
FINAL_EPOCH = -1
_LARGEST_EPOCH = (1 << 31) - 1

Key: TypeAlias = tuple[str | bytes, int]
"""Topic and partition; the topic is its id from version 13 on, its name before."""


class Wanted(NamedTuple):
    """What is asked of one partition. Two that are equal need not be said twice."""

    offset: int
    leader_epoch: int
    max_bytes: int


class Asked(NamedTuple):
    """The part of a fetch request that a session decides."""

    session_id: int
    epoch: int
    topics: list[FetchRequestTopic]
    forgotten: list[ForgottenTopic]


class FetchSession:
    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL_EPOCH
        self._known: dict[Key, Wanted] = {}
        self._uses_ids = False

    @property
    def is_full(self) -> bool:
        """Whether the next request names every partition."""
        return self.epoch == FULL_EPOCH

    def ask(self, wanted: Mapping[Key, Wanted], uses_ids: bool) -> Asked:
        """The next request, in the order of `wanted`. It must be followed by `answered` or `failed`."""
        if uses_ids != self._uses_ids:
            self.failed()  # a session goes on as it began
            self._uses_ids = uses_ids
        if self.is_full:
            named, gone = dict(wanted), []
        else:
            named = {key: what for key, what in wanted.items() if self._known.get(key) != what}
            gone = [key for key in self._known if key not in wanted]
        self._known = dict(wanted)
        return Asked(self.session_id, self.epoch, _topics(named, uses_ids), _forgotten(gone, uses_ids))

    def answered(self, response: FetchResponse) -> bool:
        """Takes note of an answer. False: it brought nothing but the session's end; ask again, for everything."""
        code = response.error_code
        if code != ErrorCode.NONE:
            if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            self.failed()
            return False
        if self.is_full:
            self.session_id = response.session_id
            self.epoch = FULL_EPOCH if response.session_id == NO_SESSION else 1
        elif response.session_id == NO_SESSION:
            self.session_id = NO_SESSION
            self.failed()
        else:
            self.epoch = 1 if self.epoch == _LARGEST_EPOCH else self.epoch + 1
        return True

    def failed(self) -> None:
        """Nobody knows what the broker remembers: begin anew, and have it drop the session if it is still there."""
        self.epoch = FULL_EPOCH
        self._known = {}


def _topics(named: Mapping[Key, Wanted], uses_ids: bool) -> list[FetchRequestTopic]:
    topics: dict[str | bytes, list[FetchRequestPartition]] = {}
    for (topic, index), what in named.items():
        topics.setdefault(topic, []).append(
            FetchRequestPartition(
                partition=index,
                current_leader_epoch=what.leader_epoch,
                fetch_offset=what.offset,
                partition_max_bytes=what.max_bytes,
            )
        )
    return [
        FetchRequestTopic(topic_id=_bytes(topic), partitions=partitions)
        if uses_ids
        else FetchRequestTopic(topic=str(topic), partitions=partitions)
        for topic, partitions in topics.items()
    ]


def _forgotten(gone: list[Key], uses_ids: bool) -> list[ForgottenTopic]:
    topics: dict[str | bytes, list[int]] = {}
    for topic, index in gone:
        topics.setdefault(topic, []).append(index)
    return [
        ForgottenTopic(topic_id=_bytes(topic), partitions=indexes)
        if uses_ids
        else ForgottenTopic(topic=str(topic), partitions=indexes)
        for topic, indexes in topics.items()
    ]


def _bytes(topic: str | bytes) -> bytes:
    if isinstance(topic, str):
        raise TypeError(f"topic {topic!r} is named where its id is needed")
    return topic

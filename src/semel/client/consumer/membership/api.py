"""What the consumer and its membership of a group know of each other.

The consumer is the Owner: it holds what is assigned, and is told of every change. The Membership talks to the group's
coordinator, in the background; but the Owner's callbacks run only while the program is inside poll, close, unsubscribe.

A membership is out of the group until `subscription_changed` is first called, and again after `leave`.
"""

from __future__ import annotations

from typing import Protocol

from semel.client.errors import SemelError
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity

Partitions = frozenset[TopicPartition]


class Owner(Protocol):
    """The consumer, as its membership sees it.

    `revoke`, `lose` and `assign` change what `owned` answers. They are never cancelled: a `reconcile` that is cancelled
    while one runs ends when the callback has ended. If one raises (a listener's fault, say), it counts as done, the
    error goes out through `reconcile` or leave, and the next `reconcile` goes on behind it.
    """

    def subscription(self) -> frozenset[str]:
        """The names of the topics; a pattern that the client resolves is resolved already.

        The consumer itself has its cluster watch these; the membership watches what a leader needs beyond them.
        """
        ...

    def pattern(self) -> str | None:
        """A pattern in RE2's syntax that the broker is to resolve (group_protocol "consumer" only), else None."""
        ...

    def owned(self) -> Partitions: ...

    async def revoke(self, partitions: Partitions) -> None:
        """Commits if auto-commit is on, calls the listener, and stops fetching them. Never called with none."""
        ...

    async def lose(self, partitions: Partitions) -> None:
        """They are gone already: no commit, the listener's `lost`. Never called with none."""
        ...

    async def assign(self, partitions: Partitions) -> None:
        """Only those that are new. Called after every rebalance of the classic protocol, also with none of them, as
        Kafka's listeners are."""
        ...

    def unsettled(self) -> None:
        """Something is to be settled, or `failure` was set: a poll that waits for records should look. Never waits."""
        ...


class Membership(Protocol):
    identity: GroupIdentity
    """Who we are now: generation -1 and member "" outside of the group. Outside of it nothing may be committed: to the
    broker that would be the commit of somebody who shares with nobody. KIP-848 changes the generation (the member
    epoch) at any time: a commit that is refused with STALE_MEMBER_EPOCH is worth a retry with the newer one."""

    failure: SemelError | None
    """What no retry can mend (fenced, not authorised, ...): poll raises it."""

    def is_settled(self) -> bool:
        """Nothing is to be done. Cheap: called at every poll."""
        ...

    async def reconcile(self, *, wait: bool = True) -> None:
        """Joins, rejoins, reconciles until nothing is left to do, running the Owner's callbacks.

        Without `wait` it returns as soon as only the coordinator's answer is missing (`Owner.unsettled` is called when
        it comes): a consumer that keeps partitions through a rebalance can read on meanwhile.

        May be cancelled at any time; requests under way go on in the background, and the next `reconcile` goes on where
        this one was, losing and doubling nothing. Raises `failure`, and what a callback raises.
        """
        ...

    def polled(self) -> None:
        """The program is inside poll from here on: the clock of max.poll.interval.ms stands still."""
        ...

    def returned(self) -> None:
        """The program is out of poll, with its records: the clock of max.poll.interval.ms starts at zero."""
        ...

    def subscription_changed(self) -> None:
        """`Owner.subscription` or `Owner.pattern` answers differently, or is to count for the first time."""
        ...

    def commit_refused(self, code: int) -> None:
        """An OffsetCommit with our identity was answered with this code: if it says that we are out, we act on it."""
        ...

    async def leave(self, *, reason: str = "") -> None:
        """Revokes what is owned, or loses it if we are out already, and tells the coordinator, who is asked once.

        Static members stay known to the coordinator until their session ends, so that a restart changes nothing.
        """
        ...

    async def close(self) -> None:
        """Ends what runs in the background. No callbacks, no requests: `leave` comes before, if at all."""
        ...

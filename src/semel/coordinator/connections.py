"""Over which connections producers of the first generation of transactions speak to a shard.

Their epoch stays the same from one transaction to the next, so a request that was delayed on its way looks as if it
belonged to the transaction that is open now (in the second generation its epoch tells). What tells it here is the
connection that it comes over, by two rules; numbers grow with each connection that this node accepts.

1. *While this node leads*: a client never goes back to a connection that it has replaced. So a request over an older
   connection than the newest one that its producer has used was overtaken, and is refused.
2. *When another node may have led in between*: what the producer did there is not known here, and neither is the
   connection that it used. A request that was sent before it went there came over a connection that this node had
   accepted before it began to lead again. So every request over one that is as old as that is refused by closing the
   connection. A live client connects again and repeats its request: over a new connection it says what it wants now. A
   delayed request has nobody who would repeat it: when its client is done with it and goes on to the next transaction,
   it has had an answer to it, or has given the connection up.

Rule 2 is safe because a request over a newer connection was sent after this node had begun to lead, and if another node
leads after that, this node has to begin again. It costs each connection that is older at most one reconnect in a term.
At the start of a node there is no connection yet, so nothing is closed; terms of this node that follow each other
without a gap in their epochs are one as far as connections are concerned, for each epoch has one leader.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from semel.log.errors import Refused
from semel.rpc.served import CloseConnection
from semel.wire.errors import ErrorCode


class Connections:
    def __init__(self, since: int = 0) -> None:
        """Connections up to the number `since` are older than the leadership."""
        self.since = since
        self._newest: dict[Hashable, tuple[Hashable, int]] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def check(self, who: Hashable, identity: Hashable, connection: int) -> None:
        """Raises Refused or CloseConnection when a request of this producer was overtaken. Call it only for the
        producer itself: another instance, or a made-up one, is fenced by the identity (producer id and epoch) that it
        claims, and must not lock the real one out by coming over a newer connection."""
        if connection <= self.since:
            raise CloseConnection(f"connection {connection} is older than the leadership of this coordinator")
        known = self._newest.get(who)
        if known is not None and known[0] == identity and connection <= known[1]:
            if connection == known[1]:
                return
            raise Refused(ErrorCode.NOT_COORDINATOR, "the request was overtaken by one on a newer connection")
        self._newest[who] = (identity, connection)

    def forget(self, who: Hashable) -> None:
        self._newest.pop(who, None)

    def keep(self, is_kept: Callable[[Hashable], bool]) -> None:
        """Forgets all others."""
        for who in [one for one in self._newest if not is_kept(one)]:
            del self._newest[who]

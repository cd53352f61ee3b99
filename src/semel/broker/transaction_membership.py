"""Whether a partition that is led here is part of an open transaction, whichever node coordinates that.

*Coordinated here*: the coordinator is asked about every batch. Once the end is decided, a late one does not slip in
before the marker.

*Coordinated elsewhere*: a partition in whose log the transaction of this producer and epoch is open is part of it, and
nobody is asked: its first batch was let in by what follows, and as long as no marker has come, one will. Otherwise the
coordinator is asked, with a guard (`verification_guards`): in the first generation whether the partition has joined, in
the second the partition joins by it. So it costs a round trip for the first batch of a transaction in a partition.
(Kafka does the same, for local coordinators too: KIP-890.)
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.broker.cluster_view import ClusterView
from semel.broker.node_info import NodeInfo
from semel.broker.remote_joins import Place, RemoteJoins
from semel.broker.verification_guards import Guard, VerificationGuards
from semel.coordinator.shards import partition_of
from semel.coordinator.topic_names import TRANSACTIONS_TOPIC
from semel.coordinator.txn.coordinator import TransactionCoordinator
from semel.coordinator.txn.decisions import Identity
from semel.log.errors import Refused
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode

COME_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""What a coordinator, or the way to it, says to who is to ask again. The clients of a producer's partition, or of a
group, do not expect it there: each API has its own code for that."""

_NO_OFFSET = -1
# What other nodes say, in words that whoever asked for a local coordinator knows.
_TOLD = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_SERVER_ERROR: ErrorCode.NETWORK_EXCEPTION,
}


class Joined:
    """What a request has been told about partitions, until it is over. `close` gives its guards back."""

    def __init__(self, guards: VerificationGuards) -> None:
        self._guards = guards
        self._verdicts: dict[tuple[Place, Identity], Guard | Refused] = {}

    def guard(self, partition: Partition, claimed: Identity) -> None:
        place = (partition.topic, partition.index)
        self._verdicts[place, claimed] = self._guards.take(partition, claimed.producer_id)

    def refuse(self, place: Place, claimed: Identity, refusal: Refused) -> None:
        guard = self._verdicts.get((place, claimed))
        if isinstance(guard, Guard):
            self._guards.give_back(guard)
        self._verdicts[place, claimed] = refusal

    def check(self, partition: Partition, claimed: Identity) -> None:
        """Raises Refused unless a batch may be written now."""
        place = (partition.topic, partition.index)
        verdict = self._verdicts.get((place, claimed))
        if isinstance(verdict, Refused):
            raise verdict
        if verdict is not None and verdict.is_whole(partition):
            return
        known = partition.log.producers.entry(claimed.producer_id)
        if known is not None and claimed.epoch < known.epoch:
            return  # it is fenced, and the log says so (KAFKA-19690)
        raise Refused(
            ErrorCode.NETWORK_EXCEPTION,
            f"{place[0]}-{place[1]}: nobody has been asked about this transaction, or something has ended since",
        )

    def close(self) -> None:
        for verdict in self._verdicts.values():
            if isinstance(verdict, Guard):
                self._guards.give_back(verdict)
        self._verdicts.clear()


class TransactionMembership:
    def __init__(
        self,
        transactions: TransactionCoordinator,
        node: NodeInfo,
        cluster: ClusterView,
        guards: VerificationGuards,
        joins: RemoteJoins | None = None,
    ) -> None:
        """Without `joins` the node is alone, and all transactions are coordinated here."""
        self.transactions = transactions
        self._node = node
        self._cluster = cluster
        self._guards = guards
        self._joins = joins

    # -- who coordinates

    def is_elsewhere(self, transactional_id: str) -> bool:
        """Whether another node coordinates a transactional id, or for the moment none."""
        return self._joins is not None and self._coordinator(transactional_id) != self._node.node_id

    def _coordinator(self, transactional_id: str) -> int | None:
        count = self._cluster.partition_count(TRANSACTIONS_TOPIC)
        if not count:
            return None
        leader = self._cluster.leader(TRANSACTIONS_TOPIC, partition_of(transactional_id, count))
        return None if leader is None else leader.node_id

    # -- before a write

    @property
    def verifies(self) -> bool:
        return self._node.config.bool("transaction.partition.verification.enable")

    def joined(self) -> Joined:
        return Joined(self._guards)

    async def join(
        self,
        transactional_id: str,
        claimed: Identity,
        partitions: Sequence[Partition],
        joined: Joined,
        *,
        second_generation: bool,
    ) -> None:
        """When it returns, what can be known of these partitions is known, and what is known is durable: `check` says
        what came of it. In the second generation they join the transaction by it."""
        if not self.is_elsewhere(transactional_id):
            if second_generation:
                places = [(partition.topic, partition.index) for partition in partitions]
                await self.transactions.add_partitions(transactional_id, claimed, places, second_generation=True)
            else:
                await self.transactions.settled(transactional_id)
            return
        if not second_generation and not self.verifies:
            return
        asked = [partition for partition in partitions if not is_open(partition, claimed)]
        if asked:
            await self._ask(transactional_id, claimed, asked, joined, verify_only=not second_generation)

    async def _ask(
        self,
        transactional_id: str,
        claimed: Identity,
        partitions: Sequence[Partition],
        joined: Joined,
        *,
        verify_only: bool,
    ) -> None:
        node_id = self._coordinator(transactional_id)
        if node_id is None or self._joins is None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody coordinates {transactional_id!r} now")
        places = [(partition.topic, partition.index) for partition in partitions]
        for partition in partitions:
            joined.guard(partition, claimed)
        try:
            codes = await self._joins.ask(node_id, transactional_id, claimed, places, verify_only=verify_only)
        except Refused as refusal:
            raise Refused(_TOLD.get(refusal.code, refusal.code), refusal.text) from refusal
        for place, code in codes.items():
            if code:
                told = _TOLD.get(code, code)
                text = f"node {node_id}, the coordinator of {transactional_id!r}, says {code.name} of it"
                joined.refuse(place, claimed, Refused(told, text))

    def check(self, transactional_id: str, claimed: Identity, partition: Partition, joined: Joined | None) -> None:
        """Raises Refused when a batch of this producer is not part of its open transaction. Nothing else may run
        between this and the write."""
        if self.is_elsewhere(transactional_id):
            if not is_open(partition, claimed):
                (joined or self.joined()).check(partition, claimed)
            return
        if not self.transactions.holds(transactional_id, claimed, (partition.topic, partition.index)):
            raise Refused(
                ErrorCode.TRANSACTION_ABORTABLE,
                f"{partition.topic}-{partition.index} is not part of an open transaction of {transactional_id!r}",
            )


def is_open(partition: Partition, claimed: Identity) -> bool:
    """Whether a transaction of this producer in this epoch has begun in the log, and no marker has ended it."""
    known = partition.log.producers.entry(claimed.producer_id)
    return known is not None and known.epoch == claimed.epoch and known.transaction_first_offset != _NO_OFFSET

"""All shards of one internal topic on this node: each is loaded when this node begins to lead its partition, without
being asked, so that what was left unfinished goes on; and let go when the leadership ends.

A term of leadership is one `Partition` object, and everything here belongs to the object that it was begun for: what
ends an older term cannot touch a newer one. The order at the end of a term:
1. `follow` takes the shard out of the table, in the same turn of the loop in which the term ended: nobody finds it.
2. `Coordinator.let_go` ends what lives beside the state (timers, waiting requests, markers), urgently but in slices.
3. The state is dropped in slices.

A load has four parts, all but the third in slices: the log is replayed; `prepare` makes what lives beside the state;
the shard is put into the table and `begin` is told; what `begin` returns is done. Small logs are loaded at once when
somebody asks for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, NamedTuple, Protocol

from semel.coordinator.connections import Connections
from semel.coordinator.shard import S, Shard, replayed
from semel.coordinator.work import Steps, Work, WorkQueue
from semel.host.api import Clock
from semel.log.errors import CorruptSegment, Refused
from semel.log.types import Epoch
from semel.replication.partition import Partition
from semel.wire.errors import ErrorCode
from semel.wire.primitives import coordinator_partition

logger = logging.getLogger("semel.coordinator")

partition_of = lru_cache(maxsize=4096)(coordinator_partition)
# So many keys are remembered with their shards.
_MOST_KEYS = 4096
# A log up to this size is replayed at once for who asks for it.
_AT_ONCE_BYTES = 64 << 10


class Coordinator(Protocol[S]):
    """What a coordinator does when its shards come and go."""

    def prepare(self, shard: Shard[S]) -> Steps:
        """Makes what lives beside the state. When it is closed half-way, nothing of it may stay."""

    def begin(self, shard: Shard[S]) -> Steps:
        """The shard is served from now on. What is to be done before anybody can ask it is done by the call itself,
        the rest by the steps that it returns."""

    def let_go(self, shard: Shard[S]) -> Steps:
        """The shard is served no longer. What must not outlive the leadership ends with the call itself, the rest by
        the steps that it returns."""


class _Load(NamedTuple, Generic[S]):
    shard: Shard[S]
    work: Work


class _Term(NamedTuple):
    """What is remembered of the newest term of a partition until another node leads."""

    epoch: Epoch
    connections: Connections


class Shards(Generic[S]):
    def __init__(
        self,
        topic: str,
        partition: Callable[[str, int], Partition],
        count: Callable[[str], int],
        make_state: Callable[[], S],
        clock: Clock,
        coordinator: Coordinator[S],
        codec: int = 0,
        *,
        work: WorkQueue | None = None,
        newest_connection: Callable[[], int] = lambda: 0,
    ) -> None:
        self.topic = topic
        self._partition = partition
        self._count = count
        self._make_state = make_state
        self._clock = clock
        self._coordinator = coordinator
        self._codec = codec
        self._work = work or WorkQueue(clock)
        self._newest_connection = newest_connection
        self._loaded: dict[int, Shard[S]] = {}
        self._loading: dict[int, _Load[S]] = {}
        self._unreadable: dict[int, tuple[Partition, Refused]] = {}
        self._terms: dict[int, _Term] = {}
        # What `for_key` has found, until the committed metadata says anything new of partitions.
        self._by_key: dict[str, Shard[S]] = {}
        self.on_damage: Callable[[bytes, int], None] = lambda topic_id, index: None
        """Told of a partition that cannot be read, by the id of the topic and its number."""

    # -- asking

    def for_key(self, key: str) -> Shard[S]:
        """The shard that a group id or transactional id belongs to; Refused while it is not there yet."""
        shard = self._by_key.get(key)
        if shard is not None and not shard.partition.is_closed and shard.partition.leader_epoch == shard.epoch:
            return shard
        shard = self.at(self.index_for(key))
        if len(self._by_key) >= _MOST_KEYS:
            self._by_key.clear()
        self._by_key[key] = shard
        return shard

    def index_for(self, key: str) -> int:
        count = self._count(self.topic)
        if not count:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} does not exist yet")
        return partition_of(key, count)

    def at(self, index: int) -> Shard[S]:
        shard = self._loaded.get(index)
        if shard is not None and shard.is_current:
            return shard
        try:
            partition = self._partition(self.topic, index)
        except Refused as refusal:
            self._let_go(index)
            if refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise Refused(ErrorCode.NOT_COORDINATOR, refusal.text) from refusal
            raise
        self.lead(partition)
        load = self._loading.get(index)
        if load is not None and partition.log.size_bytes <= _AT_ONCE_BYTES:
            load.work.finish()
        shard = self._loaded.get(index)
        if shard is not None and shard.is_current:
            return shard
        if index in self._unreadable:
            raise self._unreadable[index][1]
        raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{index} is being loaded")

    def loaded(self) -> list[Shard[S]]:
        return [shard for shard in self._loaded.values() if shard.is_current]

    def loading(self) -> list[Partition]:
        """The terms whose state is not known yet."""
        return [load.shard.partition for load in self._loading.values()]

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    # -- following the leadership

    def began(self, partition: Partition) -> None:
        """A term has begun here. Of an empty log nothing is to be gone on with: it is loaded when somebody asks."""
        if partition.log.segments or self._known(partition.index) is not None:
            self.lead(partition)

    def follow(self, is_led_here: Callable[[int], bool]) -> None:
        """The committed metadata has changed: lets go of what was led in terms that are over. `is_led_here` says which
        partitions this node leads by the metadata, in this term or the next."""
        self._by_key.clear()
        for index in [*self._loading, *self._loaded]:
            known = self._known(index)
            if known is not None and not known.is_current:
                self._let_go(index)
        for index in [index for index in self._terms if not is_led_here(index)]:
            self._let_go(index)
            del self._terms[index]

    def load_all(self) -> None:
        """At start, before anybody can ask: small logs are loaded when it returns."""
        for index in range(self._count(self.topic)):
            try:
                self.began(self._partition(self.topic, index))
            except Refused:
                continue  # another node leads it, or it is offline
        for load in list(self._loading.values()):
            if load.shard.partition.log.size_bytes <= _AT_ONCE_BYTES:
                load.work.finish()

    def lead(self, partition: Partition) -> None:
        """This node leads a partition in this term."""
        index = partition.index
        known = self._known(index)
        if known is not None:
            if known.partition is partition and known.is_current:
                return
            self._let_go(index)
        if index in self._unreadable:
            if self._unreadable[index][0] is partition:
                return
            del self._unreadable[index]
        shard = Shard(partition, self._make_state(), self._clock, self._codec, self._connections(partition))
        self._loading[index] = _Load(shard, self._work.add(self._load(shard)))

    def _let_go(self, index: int) -> None:
        self._by_key.clear()
        load = self._loading.pop(index, None)
        if load is not None:
            load.work.cancel()
            self._work.add(load.shard.state.dropped(), is_urgent=True)
        shard = self._loaded.pop(index, None)
        if shard is not None:
            logger.debug("%s-%d: leader epoch %d is over, its state is let go", self.topic, index, shard.epoch)
            self._work.add(_dropped(shard, self._coordinator.let_go(shard)), is_urgent=True)

    def _known(self, index: int) -> Shard[S] | None:
        load = self._loading.get(index)
        return load.shard if load is not None else self._loaded.get(index)

    def _connections(self, partition: Partition) -> Connections:
        """Terms that follow each other without a gap go on with the same: each epoch has one leader, so nobody else has
        led in between. A log in which nothing stands was written by nobody; at the start of a node there is no
        connection yet."""
        index, epoch = partition.index, partition.leader_epoch
        before = self._terms.get(index)
        if before is not None and epoch - before.epoch in (0, 1):
            connections = before.connections
        else:
            connections = Connections(0 if partition.log.end_offset == 0 else self._newest_connection())
        self._terms[index] = _Term(epoch, connections)
        return connections

    # -- loading

    def _load(self, shard: Shard[S]) -> Steps:
        index = shard.partition.index
        try:
            yield from replayed(shard)
            yield from self._coordinator.prepare(shard)
        except CorruptSegment as damage:
            self._give_up(shard, str(damage))
            self.on_damage(shard.partition.topic_id, index)
            return
        except Exception as error:
            logger.critical("%s-%d cannot be replayed", self.topic, index, exc_info=True)
            self._give_up(shard, f"a record of it cannot be replayed: {error!r}")
            return
        del self._loading[index]
        self._loaded[index] = shard
        yield from self._coordinator.begin(shard)

    def _give_up(self, shard: Shard[S], why: str) -> None:
        """Half a state is none: what lives in this partition is not served, the others go on."""
        index = shard.partition.index
        logger.error("%s-%d is not served: %s", self.topic, index, why)
        self._unreadable[index] = (shard.partition, Refused(ErrorCode.KAFKA_STORAGE_ERROR, why))
        del self._loading[index]

    async def close(self) -> None:
        """A clean stop of the coordinator, which has let go of its shards itself."""
        for load in self._loading.values():
            load.work.cancel()
        self._loading.clear()
        self._loaded.clear()
        self._by_key.clear()
        await self._work.close_if_idle()


def _dropped(shard: Shard[S], steps: Steps) -> Steps:
    yield from steps
    yield from shard.state.dropped()

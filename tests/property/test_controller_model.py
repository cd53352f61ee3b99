"""Random decisions on a cluster, over a small model of its logs: nothing that was acknowledged is lost.

The model is as much of replication as the controller's decisions rest on. A leader appends, followers copy what they
can, and the high watermark is Kafka's: the least end over the leader's ISR (and what it has proposed), not moved while
the ISR is smaller than it has to be. Brokers die and may lose what was not flushed, and say at their next start whether
they have; leaders ask for other ISRs, late and by what they last knew; administrators move partitions and elect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.config import BrokerConfig
from semel.controller import brokers
from semel.controller.cluster_rules import ClusterRules
from semel.controller.image import MetadataImage, PartitionState, partition_record
from semel.controller.isr import alter_partitions
from semel.controller.leaders import elect_leaders, elect_preferred
from semel.controller.levels import SUPPORTED_FEATURES, versioned
from semel.controller.reassignment import reassign
from semel.wire.spec.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    IsrMember,
)
from semel.wire.spec.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from semel.wire.spec.broker_registration import BrokerFeature, BrokerRegistrationRequest
from semel.wire.spec.elect_leaders import ElectLeadersRequest
from semel.wire.spec.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)

TOPIC_ID = b"\x05" * 16
NODES = (1, 2, 3, 4, 5)
STARTING = (1, 2, 3)
CONFIG = BrokerConfig(
    {
        "node.id": "9",
        "process.roles": "controller",
        "listeners": "CONTROLLER://n9:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "9@n9:9093",
    }
)
RANGES = [
    BrokerFeature(name=name, min_supported_version=known.least, max_supported_version=known.most)
    for name, known in SUPPORTED_FEATURES.items()
]


@dataclass
class Replica:
    """One broker's copy: its records, how many of them are flushed, and the broker's state."""

    records: list[int] = field(default_factory=list)
    is_up: bool = True
    incarnation: int = 1
    epoch: int = -1  # that it was last given
    may_have_lost: bool = False


class World:
    """One partition of one topic on five brokers, and the metadata that a controller writes about it."""

    def __init__(self, level: int, elr: bool, min_insync: int, unclean: bool, loses: bool) -> None:
        self.image = MetadataImage()
        self.history: list[tuple[MetadataRecord, int]] = []
        self.replicas = {node_id: Replica() for node_id in NODES}
        self.loses = loses  # whether a crash can take records that were copied
        self.is_unclean_allowed = unclean
        self.had_unclean = False
        self.min_insync = min_insync
        self.known: PartitionState | None = None  # by the leader, which may be behind
        self.proposed: tuple[int, ...] = ()
        self.joining: tuple[int, ...] = ()  # with what is being decided
        self.high_watermark = 0
        self.acknowledged: list[int] = []
        self.next_record = 0
        self.write([FeatureLevelRecord(name="metadata.version", feature_level=level)])
        if elr:
            self.write([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
        for node_id in NODES:
            self.register(node_id)
            self.write(brokers.unfence(self.image, CONFIG, node_id))
        self.write([TopicRecord(name="t", topic_id=TOPIC_ID)])
        for name, value in (("min.insync.replicas", min_insync), ("unclean.leader.election.enable", unclean)):
            self.write([ConfigRecord(resource_type=2, resource_name="t", name=name, value=str(value).lower())])
        directories = tuple(bytes([one]) * 16 for one in STARTING) if level >= 17 else ()
        state = PartitionState(STARTING, STARTING, 1, 0, 0, directories=directories)
        self.write([partition_record(TOPIC_ID, 0, state)])
        self.learn()

    # -- metadata

    @property
    def state(self) -> PartitionState:
        return self.image.topics["t"].partitions[0]

    def write(self, records: list[MetadataRecord]) -> None:
        """What is written is read again, so that the image is that of whoever follows the log."""
        before = self.image.topics["t"].partitions.get(0) if "t" in self.image.topics else None
        for record, version in list(versioned(records, self.image.metadata_version)):
            self.history.append((record, version))
            self.image.replay(decode_metadata_record(encode_metadata_record(record, version)))
        if before is not None:
            self.check_step(before, self.state)

    def check_step(self, before: PartitionState, after: PartitionState) -> None:
        if before == after:
            return
        assert after.partition_epoch > before.partition_epoch
        assert after.leader_epoch >= before.leader_epoch
        if after.leader != before.leader or not set(before.replicas) <= set(after.replicas):
            assert after.leader_epoch > before.leader_epoch
        if after.leader_epoch > before.leader_epoch and after.leader >= 0 and after.leader != before.leader:
            # Who joins with the change that ends a reassignment may lead at once.
            is_clean = after.leader in {*before.isr, *before.elr, *self.joining}
            if not is_clean:
                assert self.is_unclean_allowed
                assert after.is_recovering
                self.had_unclean = True

    def rules(self) -> ClusterRules:
        return ClusterRules(self.image, CONFIG)

    # -- brokers

    def register(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        request = BrokerRegistrationRequest(
            broker_id=node_id,
            incarnation_id=bytes([node_id, replica.incarnation % 256]) * 8,
            features=RANGES,
            log_dirs=[bytes([node_id]) * 16],
            # One that has lost nothing may say so, though it was killed.
            previous_broker_epoch=-1 if replica.may_have_lost else replica.epoch,
        )
        self.write(brokers.register(self.image, CONFIG, request, len(self.history)))
        replica.epoch = self.image.brokers[node_id].broker_epoch
        replica.may_have_lost = False

    def crash(self, node_id: int, cut: int) -> None:
        replica = self.replicas[node_id]
        replica.is_up = False
        if self.loses and cut:
            del replica.records[-cut:]
            replica.may_have_lost = True
        if node_id == self.leader():
            self.known = None

    def restart(self, node_id: int) -> None:
        replica = self.replicas[node_id]
        if not replica.is_up:
            replica.is_up = True
            replica.incarnation += 1
            self.register(node_id)

    def bounce(self, node_id: int, cut: int) -> None:
        self.crash(node_id, cut)
        self.fence(node_id)
        self.restart(node_id)
        self.unfence(node_id)

    def fence(self, node_id: int) -> None:
        if not self.image.brokers[node_id].fenced:
            self.write(brokers.fence(self.image, CONFIG, node_id))

    def unfence(self, node_id: int) -> None:
        if self.image.brokers[node_id].fenced and self.replicas[node_id].is_up:
            self.write(brokers.unfence(self.image, CONFIG, node_id))
            self.learn()

    def stop(self, node_id: int) -> None:
        if self.image.is_active(node_id):
            self.write(brokers.begin_shutdown(self.image, CONFIG, node_id))

    # -- replication

    def leader(self) -> int | None:
        """The broker that believes to lead, as far as it matters: the one of the newest state that a leader knows."""
        return None if self.known is None else self.known.leader

    def learn(self) -> None:
        """The leader of the newest metadata hears of it, if it is up."""
        state = self.state
        if state.leader < 0 or not self.replicas[state.leader].is_up:
            return
        if self.known is None or self.known.leader_epoch != state.leader_epoch:
            self.proposed = ()
            # Who leads anew knows nothing that was acknowledged above what it holds.
            self.high_watermark = min(self.high_watermark, len(self.replicas[state.leader].records))
        elif self.known.partition_epoch != state.partition_epoch:
            self.proposed = ()
        self.known = state

    def append(self) -> None:
        leader = self.leader()
        if leader is not None and self.is_led(leader):
            self.replicas[leader].records.append(self.next_record)
            self.next_record += 1

    def produce(self) -> None:
        """A record, and everybody copies it who can."""
        self.learn()
        self.append()
        for node_id in NODES:
            self.follow(node_id)

    def is_led(self, leader: int) -> bool:
        return self.known is not None and self.known.leader == leader and self.replicas[leader].is_up

    def follow(self, node_id: int) -> None:
        """A follower copies from the leader of the newest metadata, and the leader sees how far it is."""
        state = self.state
        if self.known is None or self.known.leader_epoch != state.leader_epoch or not self.is_led(state.leader):
            return
        replica = self.replicas[node_id]
        if node_id == state.leader or node_id not in state.replicas or not replica.is_up:
            return
        replica.records = list(self.replicas[state.leader].records)
        self.advance()

    def advance(self) -> None:
        assert self.known is not None
        maximal = {*self.known.isr, *self.proposed}
        if len(self.known.isr) < min(self.min_insync, len(self.known.replicas)) or not self.known.isr:
            return
        ends = []
        leading = self.replicas[self.known.leader].records
        for node_id in maximal:
            records = self.replicas[node_id].records
            same = 0
            while same < min(len(records), len(leading)) and records[same] == leading[same]:
                same += 1
            ends.append(same)
        if min(ends) > self.high_watermark:
            self.high_watermark = min(ends)
            self.acknowledged = leading[: self.high_watermark]

    def propose(self, members: set[int]) -> None:
        """The leader asks for another ISR, by the state that it knows."""
        known = self.known
        if known is None or not self.is_led(known.leader) or known.leader not in known.replicas:
            return
        leading = self.replicas[known.leader].records
        isr = [known.leader]
        for node_id in known.replicas:
            replica = self.replicas[node_id]
            is_caught_up = replica.is_up and replica.records[: self.high_watermark] == leading[: self.high_watermark]
            is_caught_up = is_caught_up and len(replica.records) == len(leading)
            if node_id != known.leader and node_id in members and (node_id in known.isr or is_caught_up):
                isr.append(node_id)
        self.proposed = tuple(isr)
        epochs = {one: self.replicas[one].epoch for one in isr}
        partition = AlterPartitionRequestPartition(
            leader_epoch=known.leader_epoch,
            partition_epoch=known.partition_epoch,
            leader_recovery_state=int(known.is_recovering and len(isr) == 1),
            new_isr_with_epochs=[IsrMember(broker_id=one, broker_epoch=epochs[one]) for one in isr],
        )
        topics = [AlterPartitionRequestTopic(topic_id=TOPIC_ID, partitions=[partition])]
        request = AlterPartitionRequest(broker_id=known.leader, topics=topics)
        records, _ = alter_partitions(self.rules(), request)
        self.joining = self.proposed
        self.write([*records])
        self.joining = ()
        if records and self.state.leader_epoch == known.leader_epoch:
            self.learn()

    # -- administrators

    def move(self, target: list[int] | None) -> None:
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[ReassignablePartition(replicas=target)])]
        )
        records, _ = reassign(self.rules(), request)
        self.write(records)

    def prefer(self) -> None:
        records, _ = elect_preferred(self.rules())
        self.write(records)

    def force(self) -> None:
        """An administrator takes what is left; from then on records may be missing."""
        had, self.is_unclean_allowed = self.is_unclean_allowed, True
        records, _ = elect_leaders(self.rules(), ElectLeadersRequest(election_type=1, topic_partitions=None))
        self.write(records)
        self.is_unclean_allowed = had

    # -- what has to hold

    def check(self) -> None:
        state = self.state
        if state.leader >= 0:
            assert state.leader in state.isr
            assert self.image.is_active(state.leader), "who is fenced or stops does not lead"
        assert set(state.isr) <= set(state.replicas)
        assert set(state.elr) <= set(state.replicas)
        assert not set(state.elr) & set(state.isr)
        assert len(set(state.replicas)) == len(state.replicas)
        assert set(state.adding) | set(state.removing) <= set(state.replicas)
        assert not state.directories or len(state.directories) == len(state.replicas)
        if not self.image.has_elr:
            assert state.isr, "without an ELR the last member stays"
            assert state.elr == ()
        if self.had_unclean:
            return
        # Without an unclean election, whoever can lead cleanly has everything that was acknowledged.
        if self.loses and not self.image.has_elr:
            return  # Kafka's "last replica standing"
        for node_id in (*state.isr, *state.elr):
            replica = self.replicas[node_id]
            if not replica.may_have_lost:
                assert replica.records[: len(self.acknowledged)] == self.acknowledged, node_id

    def check_history(self) -> None:
        """A snapshot at any point, and the log after it, make the same image as the log alone."""
        cut = Random(len(self.history)).randrange(len(self.history))
        image = MetadataImage()
        for number, (record, version) in enumerate(self.history):
            if number == cut:
                snapshot, image = image, MetadataImage()
                for kept, kept_version in versioned(snapshot.records(), snapshot.metadata_version):
                    image.replay(decode_metadata_record(encode_metadata_record(kept, kept_version)))
                assert image == snapshot
            image.replay(decode_metadata_record(encode_metadata_record(record, version)))
        assert image == self.image


STEPS = st.one_of(
    st.tuples(st.sampled_from(["append", "append", "learn", "learn", "prefer"])),
    st.tuples(
        st.sampled_from(["fence", "unfence", "unfence", "restart", "restart", "stop", "follow", "follow", "follow"]),
        st.sampled_from(NODES),
    ),
    st.tuples(st.sampled_from(["produce"])),
    st.tuples(st.sampled_from(["crash", "bounce"]), st.sampled_from(NODES), st.integers(0, 3)),
    st.tuples(st.just("propose"), st.sets(st.sampled_from(NODES))),
    st.tuples(st.just("move"), st.none() | st.permutations(NODES).map(lambda order: order[: 1 + order[0] % 3])),
)


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize(("level", "elr"), [(7, False), (21, False), (27, False), (27, True), (30, True)])
@given(
    steps=st.lists(STEPS, min_size=5, max_size=60),
    min_insync=st.integers(1, 3),
    loses=st.booleans(),
    force=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_nothing_acknowledged_is_lost_without_an_unclean_election(
    level: int, elr: bool, unclean: bool, steps: list[Any], min_insync: int, loses: bool, force: bool
) -> None:
    world = World(level, elr, min_insync, unclean, loses)
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
        world.check()
    world.write([NoOpRecord()])
    # In the end all come back: without loss, somebody leads.
    for node_id in NODES:
        world.restart(node_id)
        world.unfence(node_id)
        world.check()
    state = world.state
    if state.isr or state.elr:
        able = [one for one in state.isr or state.elr if world.image.is_active(one)]
        assert state.leader >= 0 or not able
    if force:
        world.force()
        world.check()
    world.check_history()

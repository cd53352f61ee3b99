"""The active controller over time: brokers come, live, stop and die; answers wait for the disk; a restart goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from cluster_image import CLUSTER_SETTINGS, directory
from led_metadata import LedMetadata

from semel.config import BrokerConfig
from semel.controller.active_controller import ActiveController
from semel.controller.bootstrap import first_features, write_bootstrap
from semel.controller.controller import Controller, NewTopic
from semel.controller.image import MetadataImage
from semel.controller.levels import SUPPORTED_FEATURES, features_at
from semel.controller.upkeep import Upkeep
from semel.log.errors import BrokenLog
from semel.sim.clock import SimClock
from semel.sim.disk import SimDisk
from semel.sim.loop import run
from semel.wire.errors import ErrorCode
from semel.wire.spec.allocate_producer_ids import AllocateProducerIdsRequest
from semel.wire.spec.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    IsrMember,
)
from semel.wire.spec.assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
)
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from semel.wire.spec.broker_registration import BrokerFeature, BrokerListener, BrokerRegistrationRequest
from semel.wire.spec.controller_registration import ControllerRegistrationRequest
from semel.wire.spec.elect_leaders import ElectLeadersRequest
from semel.wire.spec.unregister_broker import UnregisterBrokerRequest

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
TIMEOUT_S = 9.0


class Room:
    """A controller of a cluster on a simulated disk, with whoever speaks to it."""

    def __init__(self, disk: SimDisk, level: int = 27, **settings: str) -> None:
        loop = asyncio.get_running_loop()
        self.disk = disk
        self.clock = SimClock(loop)
        self.broken: list[BaseException] = []
        config = BrokerConfig(CLUSTER_SETTINGS | {name.replace("_", "."): value for name, value in settings.items()})
        self.config, self.level = config, level
        self.metadata = LedMetadata(disk, on_broken=self.broken.append)
        self.active = ActiveController(lambda: self.controller, lambda: self.image)
        self.epochs: dict[int, int] = {}

    async def open(self) -> None:
        term = await self.metadata.open()
        self.controller = Controller(term, self.config, Random(1), self.clock, lambda: CLUSTER_ID)
        self.controller.activate(features_at(self.level))
        self.upkeep = Upkeep(self.controller, self.broken.append)
        self.upkeep.start()
        await self.metadata.when_committed()

    @property
    def image(self) -> MetadataImage:
        return self.metadata.committed

    async def register(self, node_id: int, incarnation: int = 1, **more: Any) -> int:
        """The error code."""
        response = await self.active.register_broker(
            BrokerRegistrationRequest(
                broker_id=node_id,
                cluster_id=more.pop("cluster_id", CLUSTER_ID),
                incarnation_id=bytes([node_id, incarnation]) * 8,
                listeners=[BrokerListener(name="PLAINTEXT", host=f"n{node_id}", port=9092)],
                features=[
                    BrokerFeature(name=name, min_supported_version=known.least, max_supported_version=known.most)
                    for name, known in SUPPORTED_FEATURES.items()
                ],
                log_dirs=[directory(node_id)],
                **more,
            )
        )
        if not response.error_code:
            self.epochs[node_id] = response.broker_epoch
        return response.error_code

    async def beat(self, node_id: int, *, epoch: int | None = None, **more: Any) -> BrokerHeartbeatResponse:
        given = {"current_metadata_offset": self.metadata.next_offset - 1, **more}
        epoch = self.epochs[node_id] if epoch is None else epoch
        return await self.active.heartbeat(BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=epoch, **given))

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            assert await self.register(node_id) == 0
            assert not (await self.beat(node_id)).is_fenced

    async def live(self, seconds: float, *node_ids: int) -> None:
        """Time passes, and these are heard of."""
        for _ in range(int(seconds)):
            for node_id in node_ids:
                await self.beat(node_id)
            await asyncio.sleep(1)

    async def topic(self, name: str = "t", **wanted: Any) -> None:
        committed = self.controller.create_topic(NewTopic(name, **wanted)).committed
        assert committed is not None
        await committed

    def leaders(self, name: str = "t") -> list[int]:
        return [state.leader for state in self.image.topics[name].partitions.values()]

    async def end(self) -> None:
        await self.upkeep.close()
        assert not self.broken


def in_a_room(scenario: Callable[[Room], Coroutine[Any, Any, None]], **given: Any) -> SimDisk:
    disk = SimDisk(1)

    async def begin() -> None:
        room = Room(disk, **given)
        await room.open()
        await scenario(room)
        await room.end()

    run(begin())
    return disk


levels = pytest.mark.parametrize("level", [7, 17, 21, 27, 30])


@levels
def test_a_broker_comes_and_serves(level: int) -> None:
    async def scenario(room: Room) -> None:
        assert room.image.metadata_version == level
        before = room.metadata.next_offset
        assert await room.register(1) == 0
        assert room.epochs[1] == before, "the epoch of a broker is an offset of the log, so it only grows"
        assert room.image.brokers[1].fenced
        registered_at = room.metadata.next_offset - 1
        answer = await room.beat(1, current_metadata_offset=registered_at - 1)
        assert (answer.is_caught_up, answer.is_fenced) == (False, True)
        answer = await room.beat(1, current_metadata_offset=registered_at, want_fence=True)
        assert (answer.is_caught_up, answer.is_fenced) == (True, True)
        answer = await room.beat(1, current_metadata_offset=registered_at)
        assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)
        assert room.image.is_active(1)

    in_a_room(scenario, level=level)


def test_the_log_that_others_write_meanwhile_does_not_keep_a_broker_fenced() -> None:
    """KAFKA-13959."""

    async def scenario(room: Room) -> None:
        await room.start(1)
        await room.register(2)
        offset = room.metadata.next_offset - 1
        for number in range(5):
            await room.topic(f"t{number}", replication_factor=1)
            assert (await room.beat(2, current_metadata_offset=offset - 1)).is_fenced
        assert not (await room.beat(2, current_metadata_offset=offset)).is_fenced

    in_a_room(scenario)


@levels
def test_a_broker_that_dies_is_fenced_and_others_lead(level: int) -> None:
    async def scenario(room: Room) -> None:
        await room.start(1, 2, 3)
        await room.topic(partitions=6)
        assert sorted(room.leaders()) == [1, 1, 2, 2, 3, 3]
        await room.live(8, 1, 2)
        assert room.image.is_active(3)
        await room.live(4, 1, 2)
        assert room.image.brokers[3].fenced
        assert set(room.leaders()) == {1, 2}
        assert all(sorted(state.isr) == [1, 2] for state in room.image.topics["t"].partitions.values())
        assert (await room.beat(3)).is_fenced is False, "it lives, and has caught up"

    in_a_room(scenario, level=level)


def test_an_answer_waits_for_the_disk_a_refusal_as_well() -> None:
    async def scenario(room: Room) -> None:
        room.disk.flush_latency_ms = (500, 500)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        registering = asyncio.ensure_future(room.register(1))
        await asyncio.sleep(0)
        refused = asyncio.ensure_future(room.active.heartbeat(BrokerHeartbeatRequest(broker_id=1, broker_epoch=99)))
        await asyncio.wait([registering, refused])
        assert loop.time() - begun_s >= 0.5
        assert registering.result() == 0
        assert refused.result().error_code == ErrorCode.STALE_BROKER_EPOCH

    in_a_room(scenario)


def test_of_two_processes_with_one_id_the_second_waits_until_the_first_is_gone() -> None:
    async def scenario(room: Room) -> None:
        await room.start(1)
        first = room.epochs[1]
        assert await room.register(1, 2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert await room.register(1) == 0, "the same one again"
        assert room.epochs[1] == first
        await asyncio.sleep(TIMEOUT_S + 2)
        assert await room.register(1, 2) == 0
        assert room.epochs[1] > first
        answer = await room.beat(1, epoch=first)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert (await room.beat(2, epoch=1)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert await room.register(3, cluster_id="other") == ErrorCode.INCONSISTENT_CLUSTER_ID

    in_a_room(scenario)


@levels
def test_a_broker_stops_when_all_know_who_leads_in_its_place(level: int) -> None:
    async def scenario(room: Room) -> None:
        await room.start(1, 2, 3)
        await room.topic(partitions=3)
        epoch = room.image.topics["t"].partitions[0].leader_epoch
        assert epoch == 0
        answer = await room.beat(1, want_shut_down=True)
        assert (answer.is_fenced, answer.should_shut_down) == (False, False)
        assert 1 not in room.leaders()
        assert not room.image.is_active(1)
        stopped_at = room.metadata.next_offset - 1
        await room.topic("other", replication_factor=2)
        assert all(1 not in state.replicas for state in room.image.topics["other"].partitions.values())
        for node_id, offset in ((2, stopped_at), (3, stopped_at - 1)):
            await room.beat(node_id, current_metadata_offset=offset)
        assert not (await room.beat(1, want_shut_down=True)).should_shut_down
        await room.beat(3, current_metadata_offset=stopped_at)
        answer = await room.beat(1, want_shut_down=True)
        assert (answer.is_fenced, answer.should_shut_down) == (True, True)
        assert room.image.brokers[1].fenced
        previous = room.epochs[1]
        assert await room.register(1, 2, previous_broker_epoch=previous) == 0, "nobody has to wait for its end"

    in_a_room(scenario, level=level)


def test_the_last_broker_stops_too() -> None:
    async def scenario(room: Room) -> None:
        await room.start(1)
        await room.topic(partitions=3)
        await room.beat(1, want_shut_down=True)
        assert room.leaders() == [-1, -1, -1]
        assert (await room.beat(1, want_shut_down=True)).should_shut_down
        assert await room.register(1, 2, previous_broker_epoch=room.epochs[1]) == 0
        assert room.leaders() == [-1, -1, -1]
        await room.beat(1)
        assert room.leaders() == [1, 1, 1]

    in_a_room(scenario)


@levels
def test_after_a_power_loss_the_image_is_as_it_was_and_sessions_begin_anew(level: int) -> None:
    async def before(room: Room) -> None:
        await room.start(1, 2, 3)
        await room.topic(partitions=3)
        await room.beat(3, want_fence=True)
        images.append(repr(room.image))

    async def after(room: Room) -> None:
        assert repr(room.image) == images[0]
        assert await room.register(1, 2) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        room.epochs = {node_id: broker.broker_epoch for node_id, broker in room.image.brokers.items()}
        assert await room.register(3, 2, previous_broker_epoch=room.epochs[3]) == 0
        assert not (await room.beat(1)).is_fenced
        await room.live(8, 1)
        assert room.image.is_active(2)
        await room.live(3, 1)
        assert room.image.brokers[2].fenced
        assert set(room.leaders()) == {1}

    images: list[str] = []
    disk = in_a_room(before, level=level).after_power_loss()

    async def again() -> None:
        room = Room(disk, level=7 if level != 7 else 27)  # what the log says counts
        await room.open()
        assert room.image.metadata_version == level
        await after(room)
        await room.end()

    run(again())


def test_a_snapshot_makes_the_same_image() -> None:
    async def scenario(room: Room) -> None:
        await room.start(1, 2, 3)
        await room.topic(partitions=3)
        await room.metadata.snapshot()
        await room.beat(3, want_shut_down=True)
        images.append(repr(room.image))

    images: list[str] = []
    disk = in_a_room(scenario).after_power_loss()

    async def again() -> None:
        room = Room(disk)
        await room.open()
        assert repr(room.image) == images[0]
        await room.end()

    run(again())


@pytest.mark.parametrize(("level", "first"), [(7, 3), (21, 3), (27, 5)])
def test_a_new_log_begins_with_its_levels(level: int, first: int) -> None:
    async def scenario(room: Room) -> None:
        assert room.image.features == features_at(level)
        assert room.metadata.next_offset == first
        config = room.image.config(4, "")
        assert config == ({"min.insync.replicas": "1"} if room.image.has_elr else {})

    in_a_room(scenario, level=level)


def test_the_levels_of_a_new_log_are_those_that_the_directory_was_formatted_with() -> None:
    disk = SimDisk(1)
    disk.make_dirs("/data")
    assert first_features(disk, "/data") == features_at(27)
    for level in (7, 17, 30):
        write_bootstrap(disk, "/data", level, 0)
        assert first_features(disk, "/data") == features_at(level)
    disk.flip_bit("/data/bootstrap.checkpoint", 100, 3)
    with pytest.raises(BrokenLog, match="is damaged"):
        first_features(disk, "/data")


# -- what brokers ask for


def test_producer_ids_are_given_to_a_broker_by_its_epoch() -> None:
    async def scenario(room: Room) -> None:
        await room.start(1, 2)
        asked = [
            await room.active.allocate_producer_ids(AllocateProducerIdsRequest(broker_id=one, broker_epoch=epoch))
            for one, epoch in ((1, room.epochs[1]), (2, room.epochs[2]), (1, 0), (7, 0))
        ]
        assert [(one.error_code, one.producer_id_start, one.producer_id_len) for one in asked] == [
            (0, 0, 1000),
            (0, 1000, 1000),
            (ErrorCode.STALE_BROKER_EPOCH, 0, 0),
            (ErrorCode.BROKER_ID_NOT_REGISTERED, 0, 0),
        ]
        assert room.image.producer_ids.broker_id == 2

    in_a_room(scenario)


def test_an_isr_is_changed_by_a_broker_of_this_epoch() -> None:
    async def scenario(room: Room) -> None:
        await room.start(1, 2, 3)
        await room.topic(assignments={0: [1, 2, 3]})
        topic_id = room.image.topics["t"].topic_id

        async def ask(epoch: int) -> Any:
            members = [IsrMember(broker_id=one, broker_epoch=room.epochs[one]) for one in (1, 3)]
            partition = AlterPartitionRequestPartition(leader_epoch=0, partition_epoch=0, new_isr_with_epochs=members)
            topics = [AlterPartitionRequestTopic(topic_id=topic_id, partitions=[partition])]
            return await room.active.alter_partition(
                AlterPartitionRequest(broker_id=1, broker_epoch=epoch, topics=topics)
            )

        assert (await ask(room.epochs[1] - 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
        answer = await ask(room.epochs[1])
        assert (answer.error_code, answer.topics[0].partitions[0].isr) == (0, [1, 3])
        assert room.image.topics["t"].partitions[0].isr == (1, 3)
        # The answer was lost: the leader asks again, and learns that it has been done.
        answer = await ask(room.epochs[1])
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION

    in_a_room(scenario)


def test_a_broker_says_in_which_directory_a_replica_is() -> None:
    async def scenario(room: Room) -> None:
        await room.start(1, 2)
        await room.topic(assignments={0: [1, 2]})
        await room.topic("other", assignments={0: [2]})
        topic_id = room.image.topics["t"].topic_id

        async def ask(where: bytes, topic: bytes, *indexes: int) -> list[int]:
            partitions = [AssignedPartition(partition_index=one) for one in indexes]
            answer = await room.active.assign_replicas_to_dirs(
                AssignReplicasToDirsRequest(
                    broker_id=1,
                    broker_epoch=room.epochs[1],
                    directories=[
                        AssignedDirectory(id=where, topics=[AssignedTopic(topic_id=topic, partitions=partitions)])
                    ],
                )
            )
            assert not answer.error_code
            return [one.error_code for one in answer.directories[0].topics[0].partitions]

        assert await ask(directory(1), topic_id, 0, 2, 0) == [
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
        ]
        other = room.image.topics["other"].topic_id
        assert await ask(directory(1), other, 0) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert await ask(directory(1), b"\x99" * 16, 0) == [ErrorCode.UNKNOWN_TOPIC_ID]
        assert room.leaders() == [1]
        assert await ask(directory(7), topic_id, 0) == [0]
        state = room.image.topics["t"].partitions[0]
        assert (state.leader, state.isr, state.directories) == (2, (2,), (directory(7), directory(2)))

    in_a_room(scenario)


def test_directories_and_controllers_are_not_told_of_at_a_level_that_has_none() -> None:
    async def scenario(room: Room) -> None:
        await room.start(1)
        answer = await room.active.assign_replicas_to_dirs(
            AssignReplicasToDirsRequest(broker_id=1, broker_epoch=room.epochs[1])
        )
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        registered = await room.active.register_controller(ControllerRegistrationRequest(controller_id=9))
        assert registered.error_code == ErrorCode.UNSUPPORTED_VERSION

    async def later(room: Room) -> None:
        registered = await room.active.register_controller(ControllerRegistrationRequest(controller_id=9))
        assert registered.error_code == 0
        assert list(room.image.controllers) == [9]

    in_a_room(scenario, level=7)
    in_a_room(later)


def test_a_broker_that_will_not_come_back_is_unregistered() -> None:
    async def scenario(room: Room) -> None:
        await room.start(1, 2, 3)
        await room.topic()
        assert (await room.active.unregister_broker(UnregisterBrokerRequest(broker_id=3))).error_code == 0
        assert set(room.image.brokers) == {1, 2}
        assert (await room.beat(3)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        answer = await room.active.unregister_broker(UnregisterBrokerRequest(broker_id=3))
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "broker 3 is not registered",
        )
        await room.live(12, 1, 2)

    in_a_room(scenario)


# -- by itself


@pytest.mark.parametrize("is_on", [True, False])
def test_leaders_go_back_to_the_first_replicas_by_themselves(is_on: bool) -> None:
    async def scenario(room: Room) -> None:
        await room.start(1, 2, 3)
        await room.topic(assignments={0: [1, 2, 3]})
        await room.beat(1, want_fence=True)
        assert room.leaders() == [2]
        await room.beat(1)
        state = room.image.topics["t"].partitions[0]
        members = [IsrMember(broker_id=one, broker_epoch=-1) for one in (1, 2, 3)]
        partition = AlterPartitionRequestPartition(
            leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch, new_isr_with_epochs=members
        )
        topics = [AlterPartitionRequestTopic(topic_id=room.image.topics["t"].topic_id, partitions=[partition])]
        await room.active.alter_partition(
            AlterPartitionRequest(broker_id=2, broker_epoch=room.epochs[2], topics=topics)
        )
        await room.live(18, 1, 2, 3)
        assert room.leaders() == [2]
        await room.live(5, 1, 2, 3)
        assert room.leaders() == [1 if is_on else 2]

    in_a_room(
        scenario,
        leader_imbalance_check_interval_seconds="20",
        auto_leader_rebalance_enable=str(is_on).lower(),
    )


def test_a_topic_that_comes_to_allow_loss_gets_a_leader_at_once() -> None:
    async def scenario(room: Room) -> None:
        await room.start(1, 2)
        await room.topic(assignments={0: [1, 2]}, configs={"min.insync.replicas": "1"})
        await room.beat(2, want_fence=True)
        await room.beat(1, want_fence=True)
        await room.beat(2)
        assert room.leaders() == [-1]
        await room.live(400, 2)
        assert room.leaders() == [-1]
        answer = await room.active.elect_leaders(ElectLeadersRequest(topic_partitions=None))
        assert answer.replica_election_results[0].partition_result[0].error_code != 0
        committed = room.controller.alter_config(2, "t", [(0, "unclean.leader.election.enable", "true")])
        assert committed is not None
        await committed
        await room.beat(2)
        assert room.leaders() == [2]
        assert room.image.topics["t"].partitions[0].is_recovering

    in_a_room(scenario)


def test_min_insync_replicas_that_change_make_the_elr_unknown() -> None:
    """KAFKA-16540: it was found by the number as it was."""

    async def scenario(room: Room) -> None:
        await room.start(1, 2, 3)
        await room.topic(assignments={0: [1, 2, 3]})
        await room.beat(2, want_fence=True)
        await room.beat(3, want_fence=True)
        state = room.image.topics["t"].partitions[0]
        assert (state.isr, state.elr) == ((1,), (3,))
        await room.controller.alter_config(2, "t", [(0, "min.insync.replicas", "3")])  # type: ignore[misc]
        assert room.image.topics["t"].partitions[0].elr == ()
        await room.controller.alter_config(4, "", [(0, "min.insync.replicas", "2")])  # type: ignore[misc]
        for resource, operation in (("1", (0, "min.insync.replicas", "1")), ("", (1, "min.insync.replicas", None))):
            with pytest.raises(Exception, match="ELR"):
                room.controller.alter_config(4, resource, [operation])

    in_a_room(scenario)

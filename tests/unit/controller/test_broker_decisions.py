"""Registration, fencing, controlled shutdown: the rows of CLUSTER.md 2.2 and 2.3, by the records and their order."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_image import (
    OLD_LEVEL,
    Cluster,
    changes,
    directory,
    partition_changes,
)

from semel.controller import brokers
from semel.controller.brokers import BrokerState
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.broker_heartbeat import BrokerHeartbeatRequest
from semel.wire.spec.broker_registration import BrokerFeature, BrokerListener, BrokerRegistrationRequest
from semel.wire.spec.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

RANGES = {"metadata.version": (7, 30), "eligible.leader.replicas.version": (0, 1)}
NEW_EPOCH = 5000


def request(node_id: int = 1, **more: Any) -> BrokerRegistrationRequest:
    given: dict[str, Any] = {
        "broker_id": node_id,
        "incarnation_id": b"\x77" * 16,
        "listeners": [BrokerListener(name="INTERNAL", host="h", port=9092, security_protocol=0)],
        "features": [
            BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
            for name, (least, most) in (more.pop("ranges", RANGES)).items()
        ],
        "rack": "r",
        "log_dirs": [directory(node_id)],
        **more,
    }
    return BrokerRegistrationRequest(**given)


def registered(cluster: Cluster, wanted: BrokerRegistrationRequest) -> list[MetadataRecord]:
    return brokers.register(cluster.image, cluster.config, wanted, NEW_EPOCH)


def three(**settings: str) -> Cluster:
    return Cluster(min_insync_replicas="2", **settings)


# -- registration


def test_a_new_broker_is_registered_fenced_with_the_epoch_it_is_given() -> None:
    cluster = three()
    (record,) = registered(cluster, request(4, log_dirs=[directory(4), directory(5)]))
    assert isinstance(record, RegisterBrokerRecord)
    assert (record.broker_id, record.broker_epoch, record.fenced, record.rack) == (4, NEW_EPOCH, True, "r")
    assert [(one.name, one.host, one.port) for one in record.end_points] == [("INTERNAL", "h", 9092)]
    assert [one.name for one in record.features] == list(RANGES)
    assert record.log_dirs == [directory(4), directory(5)]


@pytest.mark.parametrize("previous", [100, -1, 99], ids=["clean", "unknown", "another epoch"])
def test_a_new_incarnation_leaves_its_isrs_before_it_is_registered(previous: int) -> None:
    """KAFKA-18106: after an unclean stop also the ELRs, and it is not elected on the way."""
    cluster = three()
    cluster.partition(isr=[1, 2, 3], index=0)
    cluster.partition(isr=[1], elr=(2,), index=1)
    cluster.partition(isr=[2], elr=(1,), leader=2, index=2)
    records = registered(cluster, request(1, previous_broker_epoch=previous))
    is_clean = previous == 100
    assert changes(records) == ["PartitionChange"] * (2 if is_clean else 3) + ["RegisterBroker"]
    cluster.apply(*records)
    assert cluster.image.brokers[1].fenced
    assert (cluster.state(0).isr, cluster.state(0).leader) == ((2, 3), 2)
    # Of the second partition, only the other eligible replica is left to lead.
    assert (cluster.state(1).leader, cluster.state(1).isr) == (2, (2,))
    assert cluster.state(1).elr == ((1,) if is_clean else ())
    assert cluster.state(2).elr == ((1,) if is_clean else ())


def test_an_unclean_stop_of_the_last_one_leaves_a_partition_without_anybody() -> None:
    cluster = three()
    cluster.partition(isr=[1])
    state = cluster.after(registered(cluster, request(1)))
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (-1, (), (), (1,))


@pytest.mark.parametrize("previous", [100, -1])
def test_without_an_elr_every_stop_is_taken_for_clean_and_the_last_member_stays(previous: int) -> None:
    cluster = Cluster(level=OLD_LEVEL, elr=False)
    cluster.partition(isr=[1])
    state = cluster.after(registered(cluster, request(1, previous_broker_epoch=previous)))
    assert (state.leader, state.isr) == (-1, (1,))


@pytest.mark.parametrize("fenced", [False, True])
def test_the_same_incarnation_amends_its_registration(fenced: bool) -> None:
    """KAFKA-16952: a resend must not change the epoch, nor fence a broker that serves."""
    cluster = three()
    cluster.partition()
    cluster.change(1, fenced=1 if fenced else 0, in_controlled_shutdown=1)
    records = registered(cluster, request(1, incarnation_id=directory(1), rack="other"))
    assert changes(records) == ["RegisterBroker"]
    cluster.apply(*records)
    found = cluster.image.brokers[1]
    assert (found.broker_epoch, found.fenced, found.in_controlled_shutdown, found.rack) == (100, fenced, True, "other")
    assert cluster.state().isr == (1, 2, 3)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"ranges": {"eligible.leader.replicas.version": (0, 1)}}, ErrorCode.INVALID_REGISTRATION),
        ({"ranges": {**RANGES, "metadata.version": (7, 26)}}, ErrorCode.UNSUPPORTED_VERSION),
        ({"ranges": {**RANGES, "metadata.version": (28, 30)}}, ErrorCode.UNSUPPORTED_VERSION),
        # what is not named counts as level 0
        ({"ranges": {"metadata.version": (7, 30)}}, ErrorCode.UNSUPPORTED_VERSION),
        ({"ranges": {**RANGES, "group.version": (1, 1)}}, ErrorCode.UNSUPPORTED_VERSION),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes(15) + b"\x63"]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory(7), directory(7)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory(7), directory(2)]}, ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_what_cannot_be_registered_is_refused(changed: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(Refused) as refusal:
        registered(three(), request(1, **changed))
    assert refusal.value.code == code


def test_below_the_level_of_directories_none_have_to_be_named() -> None:
    cluster = Cluster(level=OLD_LEVEL, elr=False)
    (record,) = registered(cluster, request(4, log_dirs=[], ranges={"metadata.version": (7, 7)}))
    cluster.apply(record)
    assert cluster.image.brokers[4].log_dirs == ()


def test_an_epoch_belongs_to_one_registration() -> None:
    cluster = three()
    assert brokers.check_epoch(cluster.image, 1, 100) is cluster.image.brokers[1]
    for node_id, epoch, code in ((1, 99, ErrorCode.STALE_BROKER_EPOCH), (7, 1, ErrorCode.BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(Refused) as refusal:
            brokers.check_epoch(cluster.image, node_id, epoch)
        assert refusal.value.code == code


# -- what a heartbeat makes of a broker

FENCED, UNFENCED, STOPPING, STOPPED = BrokerState


@pytest.mark.parametrize(
    ("state", "offset", "want_fence", "want_stop", "leads", "all_know", "after"),
    [
        (FENCED, 10, False, False, False, False, UNFENCED),
        (FENCED, 9, False, False, False, False, FENCED),
        (FENCED, 10, True, False, False, False, FENCED),
        (FENCED, 0, False, True, False, False, STOPPED),
        (FENCED, 10, True, True, False, False, STOPPED),
        (UNFENCED, 0, False, False, True, False, UNFENCED),
        (UNFENCED, 10, True, False, True, False, FENCED),
        (UNFENCED, 10, True, True, True, False, STOPPED),
        (UNFENCED, 10, False, True, True, False, STOPPING),
        (UNFENCED, 10, False, True, False, False, STOPPED),
        (STOPPING, 10, False, True, True, True, STOPPING),
        (STOPPING, 10, False, True, False, False, STOPPING),
        (STOPPING, 10, False, True, False, True, STOPPED),
        (STOPPING, 10, True, False, True, False, STOPPING),
    ],
)
def test_a_heartbeat_moves_a_broker(
    state: BrokerState,
    offset: int,
    want_fence: bool,
    want_stop: bool,
    leads: bool,
    all_know: bool,
    after: BrokerState,
) -> None:
    heartbeat = BrokerHeartbeatRequest(current_metadata_offset=offset, want_fence=want_fence, want_shut_down=want_stop)
    assert brokers.next_state(state, heartbeat, 10, lambda: leads, lambda: all_know) is after


def test_a_fenced_broker_leads_nothing_before_it_counts_as_gone() -> None:
    cluster = three()
    cluster.partition(index=0)
    cluster.partition(leader=2, index=1)
    cluster.partition(replicas=[2, 3], index=2)
    records = brokers.enter(FENCED, cluster.image, cluster.config, 1)
    assert changes(records) == ["PartitionChange", "PartitionChange", "BrokerRegistrationChange"]
    cluster.apply(*records)
    assert cluster.image.brokers[1].fenced
    assert [(cluster.state(index).leader, cluster.state(index).isr) for index in range(3)] == [
        (2, (2, 3)),
        (2, (2, 3)),
        (2, (2, 3)),
    ]
    assert (cluster.state(0).leader_epoch, cluster.state(1).leader_epoch) == (6, 5)


def test_the_brokers_of_a_partition_are_fenced_one_after_the_other() -> None:
    cluster = three()
    cluster.partition()
    for node_id in (2, 1, 3):
        cluster.apply(*brokers.enter(FENCED, cluster.image, cluster.config, node_id))
    state = cluster.state()
    assert (state.leader, state.isr, sorted(state.elr), state.last_known_elr) == (-1, (), [1, 3], (3,))


def test_an_unfenced_broker_leads_what_nobody_leads_and_what_it_can() -> None:
    cluster = three()
    cluster.partition(isr=[], elr=(1, 2), leader=-1, index=0)
    cluster.partition(isr=[], elr=(2,), leader=-1, index=1)
    cluster.partition(isr=[2, 1], index=2)
    cluster.fence(1)
    records = brokers.enter(UNFENCED, cluster.image, cluster.config, 1)
    assert changes(records)[0] == "BrokerRegistrationChange"
    cluster.apply(*records)
    assert not cluster.image.brokers[1].fenced
    # The second could be led by another all the time, and is found on the way.
    assert [cluster.state(index).leader for index in range(3)] == [1, 2, 2]


def test_a_broker_that_stops_hands_on_what_it_leads_and_serves_on() -> None:
    """KAFKA-14296: also where nobody else can take it."""
    cluster = three()
    cluster.partition(index=0)
    cluster.partition(replicas=[1], index=1)
    records = brokers.enter(STOPPING, cluster.image, cluster.config, 1)
    assert changes(records) == ["BrokerRegistrationChange", "PartitionChange", "PartitionChange"]
    cluster.apply(*records)
    broker = cluster.image.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown) == (False, True)
    assert not cluster.image.is_active(1)
    assert (cluster.state(0).leader, cluster.state(0).isr) == (2, (2, 3))
    assert cluster.state(1).leader == -1
    assert not brokers.leads_something(cluster.image, 1)
    # Where another controller had begun with it, it is not said twice.
    cluster.partition(index=2)
    assert changes(brokers.enter(STOPPING, cluster.image, cluster.config, 1)) == ["PartitionChange"]


def test_a_broker_that_is_fenced_already_stops_without_a_record() -> None:
    cluster = three()
    cluster.fence(1)
    assert brokers.enter(STOPPED, cluster.image, cluster.config, 1) == []
    assert changes(brokers.enter(STOPPED, cluster.image, cluster.config, 2)) == ["BrokerRegistrationChange"]


@pytest.mark.parametrize(("setting", "leader"), [("false", -1), ("true", 3)])
def test_an_unclean_leader_is_taken_only_where_the_topic_allows_it(setting: str, leader: int) -> None:
    cluster = three()
    cluster.partition(isr=[1])
    cluster.set(unclean_leader_election_enable=setting)
    cluster.fence(2)
    state = cluster.after(brokers.enter(FENCED, cluster.image, cluster.config, 1))
    assert (state.leader, state.is_recovering) == (leader, leader == 3)


def test_a_broker_that_is_unregistered_is_in_no_isr_and_no_elr() -> None:
    cluster = three()
    cluster.partition(isr=[1, 2], index=0)
    cluster.partition(isr=[2], elr=(1,), index=1)
    records = brokers.unregister(cluster.image, cluster.config, 1)
    assert records[-1] == UnregisterBrokerRecord(broker_id=1, broker_epoch=100)
    cluster.apply(*records)
    assert 1 not in cluster.image.brokers
    assert [(cluster.state(index).isr, cluster.state(index).elr) for index in range(2)] == [((2,), ()), ((2,), ())]
    with pytest.raises(Refused) as refusal:
        brokers.unregister(cluster.image, cluster.config, 1)
    assert refusal.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


# -- directories


def test_a_directory_that_is_gone_takes_its_replicas_out_of_the_isr() -> None:
    cluster = three()
    cluster.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=100, log_dirs=[directory(1), b"\x66" * 16]))
    cluster.partition(index=0)
    cluster.partition(index=1, directories=(b"\x66" * 16, directory(2), directory(3)))
    assert brokers.lose_directories(cluster.image, cluster.config, 1, [b"\x55" * 16]) == []
    records = brokers.lose_directories(cluster.image, cluster.config, 1, [directory(1)])
    assert [record.partition_id for record in partition_changes(records)] == [0]
    cluster.apply(*records)
    assert list(cluster.image.brokers[1].log_dirs) == [b"\x66" * 16]
    assert (cluster.state(0).leader, cluster.state(0).isr) == (2, (2, 3))
    assert cluster.state(1).leader == 1


def test_cordoned_directories_are_noted_when_they_change() -> None:
    cluster = Cluster(level=30)
    assert brokers.cordon_directories(cluster.image, 1, None) == []
    assert brokers.cordon_directories(cluster.image, 1, []) == []
    cluster.apply(*brokers.cordon_directories(cluster.image, 1, [directory(1)]))
    assert not brokers.can_take_replicas(cluster.image.brokers[1])
    assert brokers.cordon_directories(cluster.image, 1, [directory(1)]) == []
    cluster.apply(*brokers.cordon_directories(cluster.image, 1, []))
    assert brokers.can_take_replicas(cluster.image.brokers[1])

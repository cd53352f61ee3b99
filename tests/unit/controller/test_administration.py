"""What administrators ask the controller for: elections, reassignments, levels of features."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_image import Cluster

from semel.controller.features import Update, UpgradeType, update_features
from semel.controller.leaders import elect_leaderless_uncleanly, elect_leaders, elect_preferred
from semel.controller.reassignment import ongoing, reassign
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from semel.wire.spec.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from semel.wire.spec.list_partition_reassignments import ListPartitionReassignmentsTopic
from semel.wire.spec.metadata_records import (
    BrokerFeature,
    ConfigRecord,
    RegisterControllerRecord,
)

PREFERRED, UNCLEAN = 0, 1

# -- ElectLeaders


def elected(cluster: Cluster, kind: int, *indexes: int, topic: str = "t") -> list[int]:
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=[ElectLeadersTopic(topic=topic, partitions=list(indexes))]
    )
    records, results = elect_leaders(cluster.rules(), request)
    cluster.apply(*records)
    assert [(one.topic, [answer.partition_id for answer in one.partition_result]) for one in results] == [
        (topic, list(dict.fromkeys(indexes)))
    ]
    return [answer.error_code for answer in results[0].partition_result]


def test_the_first_of_the_replicas_leads_again_when_it_can() -> None:
    cluster = Cluster()
    cluster.partition(leader=2, index=0)
    cluster.partition(isr=[2, 3], leader=2, index=1)
    cluster.partition(index=2)
    assert elected(cluster, PREFERRED, 0, 1, 2, 3, 0) == [
        0,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [cluster.state(index).leader for index in range(3)] == [1, 2, 1]
    assert cluster.state(0).leader_epoch == 6


def test_an_administrator_may_take_a_leader_that_lacks_records() -> None:
    cluster = Cluster()
    cluster.partition(isr=[], elr=(1,), leader=-1, index=0)
    cluster.partition(isr=[], elr=(), last_known_elr=(1,), leader=-1, index=1, replicas=[1, 2])
    cluster.partition(index=2)
    cluster.fence(1, 2)
    assert elected(cluster, UNCLEAN, 0, 1, 2) == [
        0,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
    ]
    assert (cluster.state(0).leader, cluster.state(0).isr, cluster.state(0).is_recovering) == (3, (3,), True)


def test_for_all_partitions_only_those_that_need_an_election_are_told() -> None:
    cluster = Cluster()
    cluster.partition(leader=2, index=0)
    cluster.partition(index=1)
    records, results = elect_leaders(cluster.rules(), ElectLeadersRequest(topic_partitions=None))
    assert len(records) == 1
    assert [[one.partition_id for one in result.partition_result] for result in results] == [[0]]
    with pytest.raises(Refused):
        elect_leaders(cluster.rules(), ElectLeadersRequest(election_type=2, topic_partitions=None))


def test_the_controller_balances_leaders_where_that_needs_nobodys_loss() -> None:
    cluster = Cluster()
    cluster.partition(leader=2, index=0)
    cluster.partition(isr=[2, 3], leader=2, index=1)
    cluster.partition(index=2)
    for index in range(3, 153):
        cluster.partition(leader=3, index=index)
    records, has_more = elect_preferred(cluster.rules())
    assert (len(records), has_more) == (100, True)
    cluster.apply(*records)
    records, has_more = elect_preferred(cluster.rules())
    assert (len(records), has_more) == (51, False)
    cluster.apply(*records)
    assert [index for index, state in cluster.topic.partitions.items() if state.leader != 1] == [1]
    cluster.partition(leader=2, index=0)
    cluster.fence(1)
    assert elect_preferred(cluster.rules()) == ([], False)


def test_the_controller_finds_unclean_leaders_only_where_they_are_allowed() -> None:
    cluster = Cluster()
    cluster.partition(isr=[], elr=(1,), leader=-1)
    cluster.fence(1)
    assert elect_leaderless_uncleanly(cluster.rules()) == ([], False)
    cluster.set(unclean_leader_election_enable="true")
    records, _ = elect_leaderless_uncleanly(cluster.rules())
    assert cluster.after(records).leader == 2


# -- reassignment


def moved(cluster: Cluster, replicas: list[int] | None, *, may_grow: bool = True, index: int = 0) -> tuple[int, Any]:
    """The error code, and the state afterwards."""
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_grow,
        topics=[
            ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
        ],
    )
    records, responses = reassign(cluster.rules(), request)
    cluster.apply(*records)
    (answer,) = responses[0].partitions
    assert bool(answer.error_code) is bool(answer.error_message)
    return answer.error_code, cluster.topic.partitions.get(index)


def five() -> Cluster:
    return Cluster(brokers=range(1, 6))


@pytest.mark.parametrize(
    ("target", "replicas", "adding", "removing"),
    [
        ([1, 2, 4], (1, 2, 4, 3), (4,), (3,)),
        ([4, 5, 3], (4, 5, 3, 1, 2), (4, 5), (1, 2)),
        ([1, 2, 3, 4], (1, 2, 3, 4), (4,), ()),
        ([4], (4, 1, 2, 3), (4,), (1, 2, 3)),
    ],
)
def test_a_partition_begins_to_move(
    target: list[int], replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...]
) -> None:
    cluster = five()
    cluster.partition()
    code, state = moved(cluster, target)
    assert code == 0
    assert (state.replicas, state.adding, state.removing, state.isr) == (replicas, adding, removing, (1, 2, 3))
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 5, 8)


def test_a_move_that_needs_nothing_is_over_at_once() -> None:
    cluster = five()
    cluster.partition()
    _, state = moved(cluster, [3, 2, 1])
    assert (state.replicas, state.is_reassigning, state.leader, state.leader_epoch) == ((3, 2, 1), False, 1, 5)
    _, state = moved(cluster, [3, 2])
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((3, 2), (2, 3), 3, 6)
    assert moved(cluster, [3, 2]) == (0, state)


def test_a_move_may_be_replaced_by_another_and_called_off() -> None:
    cluster = five()
    cluster.partition()
    moved(cluster, [4, 2, 3])
    _, state = moved(cluster, [1, 2, 5])
    assert (state.replicas, state.adding, state.removing) == ((1, 2, 5, 3, 4), (5,), (3, 4))
    code, state = moved(cluster, None)
    assert code == 0
    assert (state.replicas, state.is_reassigning, state.isr) == ((1, 2, 3, 4), False, (1, 2, 3))
    assert moved(cluster, None)[0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_calling_off_moves_the_leader_back_and_begins_a_leader_epoch() -> None:
    cluster = five()
    cluster.partition(replicas=[4, 1, 2, 3], isr=[1, 4], leader=4, adding=(4,), removing=(3,))
    code, state = moved(cluster, None)
    assert (code, state.replicas, state.isr, state.leader, state.leader_epoch) == (0, (1, 2, 3), (1,), 1, 6)


@pytest.mark.parametrize("allowed", [False, True])
def test_calling_off_must_not_lose_records_unless_the_topic_allows_it(allowed: bool) -> None:
    cluster = five()
    before = cluster.partition(replicas=[4, 1, 2, 3], isr=[4], leader=4, adding=(4,), removing=(3,))
    cluster.set(unclean_leader_election_enable=str(allowed).lower())
    code, state = moved(cluster, None)
    if allowed:
        assert (code, state.isr, state.leader, state.is_recovering) == (0, (1,), 1, True)
    else:
        assert (code, state) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, before)


def test_calling_off_takes_an_eligible_replica_where_there_is_one() -> None:
    cluster = five()
    cluster.set(min_insync_replicas="2")
    cluster.partition(replicas=[4, 1, 2, 3], isr=[4], elr=(2,), leader=4, adding=(4,), removing=(3,))
    code, state = moved(cluster, None)
    assert (code, state.isr, state.leader, state.is_recovering) == (0, (2,), 2, False)


@pytest.mark.parametrize(
    ("target", "may_grow", "code"),
    [
        ([], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, -1], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], False, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([1, 2, 4], False, 0),
    ],
)
def test_where_a_partition_cannot_go(target: list[int], may_grow: bool, code: int) -> None:
    cluster = five()
    before = cluster.partition()
    found, state = moved(cluster, target, may_grow=may_grow)
    assert found == code
    assert code == 0 or state == before


def test_the_number_of_replicas_is_that_after_a_move_under_way() -> None:
    cluster = five()
    cluster.partition(replicas=[4, 5, 1, 2, 3], isr=[1, 2, 3], adding=(4, 5), removing=(1, 2, 3))
    assert moved(cluster, [1, 2, 3], may_grow=False)[0] == ErrorCode.INVALID_REPLICATION_FACTOR
    assert moved(cluster, [1, 2], may_grow=False)[0] == 0


def test_what_moves_is_listed() -> None:
    cluster = five()
    cluster.partition(index=0)
    cluster.partition(index=1)
    moved(cluster, [4, 2, 3], index=1)
    for topics in (None, [ListPartitionReassignmentsTopic(name="t", partition_indexes=[0, 1, 7])]):
        (topic,) = ongoing(cluster.image, topics)
        (found,) = topic.partitions
        assert (topic.name, found.partition_index) == ("t", 1)
        assert (found.replicas, found.adding_replicas, found.removing_replicas) == ([4, 2, 3, 1], [4], [1])
    assert ongoing(cluster.image, [ListPartitionReassignmentsTopic(name="t", partition_indexes=[0])]) == []
    assert ongoing(cluster.image, [ListPartitionReassignmentsTopic(name="other", partition_indexes=[0])]) == []


# -- UpdateFeatures

MV, ELR = "metadata.version", "eligible.leader.replicas.version"
UP, DOWN, UNSAFE = UpgradeType
OWN_ID = 9


def updated(cluster: Cluster, *updates: Update) -> dict[str, int]:
    """The levels afterwards."""
    cluster.apply(*update_features(cluster.image, cluster.config, updates, OWN_ID))
    return cluster.image.features


def old(level: int = 7, **more: Any) -> Cluster:
    return Cluster(level=level, elr=False, **more)


@pytest.mark.parametrize("level", [8, 17, 21, 27, 30])
def test_a_level_that_all_nodes_know_is_finalized(level: int) -> None:
    assert updated(old(), Update(MV, level))[MV] == level


def test_a_level_counts_from_its_record_on_and_several_go_together() -> None:
    cluster = old()
    features = updated(cluster, Update("transaction.version", 2), Update(ELR, 1), Update(MV, 27))
    assert features == {MV: 27, "transaction.version": 2, ELR: 1}
    assert updated(cluster, Update("transaction.version", 0, DOWN)) == {MV: 27, ELR: 1}


@pytest.mark.parametrize(
    ("updates", "code", "why"),
    [
        ([], ErrorCode.INVALID_REQUEST, "no feature"),
        ([Update(MV, 8), Update(MV, 9)], ErrorCode.INVALID_REQUEST, "twice"),
        ([Update(MV, 31)], None, "this controller knows levels 7 to 30"),
        ([Update(MV, 6, DOWN)], None, "this controller knows levels 7 to 30"),
        ([Update(MV, 0, DOWN)], None, "no cluster without it"),
        ([Update("no.such", 1)], None, "this controller knows no level"),
        ([Update("group.version", -1)], None, "at least 0"),
        ([Update("group.version", 1, 0)], None, "none of 1 to 3"),
        ([Update("group.version", 1, 4)], None, "none of 1 to 3"),
        ([Update("group.version", 1, DOWN)], None, "which is lower already"),
        ([Update("transaction.version", 1)], None, "has to be asked for"),
        ([Update(MV, 25)], None, "has to be asked for"),
        ([Update(MV, 21, DOWN), Update(ELR, 0, DOWN)], None, "would be lost"),
        ([Update(MV, 21, UNSAFE), Update(ELR, 0, UNSAFE)], None, "would be lost"),
        ([Update("kraft.version", 1)], None, "controller.quorum.voters"),
        ([Update("group.version", 1), Update(MV, 31)], None, "this controller"),
    ],
)
def test_what_cannot_be_finalized_is_refused_and_the_rest_with_it(
    updates: list[Update], code: ErrorCode | None, why: str
) -> None:
    cluster = Cluster()
    updated(cluster, Update("transaction.version", 2))
    before = dict(cluster.image.features)
    with pytest.raises(Refused, match=why) as refusal:
        updated(cluster, *updates)
    assert refusal.value.code == (code or ErrorCode.INVALID_UPDATE_VERSION)
    assert cluster.image.features == before


def test_the_elr_needs_a_level_that_can_say_it() -> None:
    with pytest.raises(Refused, match=r"it needs metadata\.version 23"):
        updated(old(level=21), Update(ELR, 1))
    with pytest.raises(Refused, match="needs"):
        updated(old(level=21), Update(ELR, 1), Update(MV, 22))
    assert updated(old(level=21), Update(ELR, 1), Update(MV, 23)) == {MV: 23, ELR: 1}


def test_what_loses_nothing_may_be_taken_back_when_it_is_asked_for() -> None:
    cluster = Cluster()
    assert updated(cluster, Update(MV, 29))[MV] == 29
    assert updated(cluster, Update(MV, 27, DOWN))[MV] == 27
    assert updated(cluster, Update(MV, 25, UNSAFE))[MV] == 25


def test_every_broker_has_to_know_a_level_fenced_or_not() -> None:
    cluster = old()
    cluster.image.brokers[3].features = [BrokerFeature(name=MV, min_supported_version=7, max_supported_version=21)]
    cluster.fence(3)
    with pytest.raises(Refused, match="broker 3 knows levels 7 to 21"):
        updated(cluster, Update(MV, 27))
    with pytest.raises(Refused, match="broker 3 knows no level of it"):
        updated(cluster, Update("group.version", 1))
    assert updated(cluster, Update(MV, 21))[MV] == 21


def test_every_controller_that_has_registered_has_to_know_a_level() -> None:
    cluster = Cluster()
    known = [BrokerFeature(name=MV, min_supported_version=7, max_supported_version=27)]
    cluster.apply(RegisterControllerRecord(controller_id=OWN_ID, features=known))
    assert updated(cluster, Update(MV, 28))[MV] == 28
    cluster.apply(RegisterControllerRecord(controller_id=8, features=known))
    with pytest.raises(Refused, match="controller 8 knows levels 7 to 27"):
        updated(cluster, Update(MV, 29))


def test_with_an_elr_all_nodes_go_by_one_number_of_replicas_in_sync() -> None:
    cluster = old(level=27, min_insync_replicas="2")
    for name in ("1", "2"):
        cluster.apply(ConfigRecord(resource_type=4, resource_name=name, name="min.insync.replicas", value="3"))
    updated(cluster, Update(ELR, 1))
    assert cluster.image.config(4, "") == {"min.insync.replicas": "2"}
    assert cluster.image.config(4, "1") == cluster.image.config(4, "2") == {}


def test_the_elr_stays_while_a_partition_can_be_led_only_from_it() -> None:
    cluster = Cluster()
    cluster.partition(isr=[], elr=(1,), leader=-1)
    with pytest.raises(Refused, match="ISR is empty"):
        updated(cluster, Update(ELR, 0, DOWN))
    cluster.partition(isr=[1])
    assert ELR not in updated(cluster, Update(ELR, 0, DOWN))


def test_a_level_that_is_finalized_already_writes_nothing() -> None:
    cluster = Cluster()
    assert update_features(cluster.image, cluster.config, [Update(MV, 27)], OWN_ID) == []

"""Who leads, and what follows from a change to a partition: the rows of CLUSTER.md 3.6 and 3.9."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_image import OLD_LEVEL, Cluster, directory

from semel.controller.elections import Candidates, Elected, Election, elect
from semel.controller.image import PartitionState
from semel.controller.partition_changes import Wanted

CLEAN, PREFERRED, UNCLEAN = Election.CLEAN, Election.PREFERRED, Election.UNCLEAN
NOBODY = Elected(-1)


@pytest.mark.parametrize(
    ("isr", "elr", "last", "leader", "active", "election", "elected"),
    [
        # who leads stays, also if another is first
        ("123", "", "", 2, "123", CLEAN, Elected(2)),
        ("123", "", "", 2, "123", UNCLEAN, Elected(2)),
        ("123", "", "", 2, "123", PREFERRED, Elected(1)),
        ("123", "", "", 2, "23", PREFERRED, Elected(2)),
        ("123", "", "", 1, "23", PREFERRED, Elected(2)),
        # else the first of the replicas that is in the ISR and active
        ("123", "", "", 1, "23", CLEAN, Elected(2)),
        ("32", "", "", 1, "123", CLEAN, Elected(2)),
        ("123", "", "", -1, "3", CLEAN, Elected(3)),
        ("1", "", "", 1, "23", CLEAN, NOBODY),
        # the ELR only once the ISR is empty
        ("1", "23", "", 1, "23", CLEAN, NOBODY),
        ("", "23", "", -1, "123", CLEAN, Elected(2)),
        ("", "23", "", -1, "123", PREFERRED, Elected(2)),
        ("", "13", "", -1, "123", PREFERRED, Elected(1)),
        ("", "2", "", -1, "13", CLEAN, NOBODY),
        # the leader known last may lack records: only where that is allowed (KAFKA-19522: and never when fenced)
        ("", "", "3", -1, "123", CLEAN, NOBODY),
        ("", "", "3", -1, "123", PREFERRED, NOBODY),
        ("", "", "3", -1, "123", UNCLEAN, Elected(3, is_unclean=True)),
        ("", "", "3", -1, "12", UNCLEAN, Elected(1, is_unclean=True)),
        ("", "", "32", -1, "123", UNCLEAN, Elected(1, is_unclean=True)),
        ("", "", "9", -1, "1239", UNCLEAN, Elected(1, is_unclean=True)),
        ("", "2", "3", -1, "13", UNCLEAN, Elected(1, is_unclean=True)),
        # any replica, where loss is allowed and nobody else is left
        ("1", "", "", 1, "23", UNCLEAN, Elected(2, is_unclean=True)),
        ("1", "", "", 1, "23", PREFERRED, NOBODY),
        ("12", "", "", 1, "23", UNCLEAN, Elected(2)),
        ("1", "", "", 1, "", UNCLEAN, NOBODY),
    ],
)
def test_the_leader_is_chosen(
    isr: str, elr: str, last: str, leader: int, active: str, election: Election, elected: Elected
) -> None:
    def nodes(text: str) -> tuple[int, ...]:
        return tuple(map(int, text))

    candidates = Candidates(
        (1, 2, 3), nodes(isr), nodes(elr), nodes(last), leader, lambda node_id: node_id in nodes(active)
    )
    assert elect(candidates, election) == elected


# -- what follows from a change


def changed(cluster: Cluster, wanted: Wanted, **rules: Any) -> PartitionState:
    """The state after the change; the same, if there is none."""
    record = cluster.rules(**rules).changed(cluster.topic, 0, cluster.state(), wanted)
    return cluster.state() if record is None else cluster.after([record])


def epochs(state: PartitionState) -> tuple[int, int]:
    return state.leader_epoch, state.partition_epoch


def test_a_change_that_changes_nothing_is_not_written() -> None:
    cluster = Cluster()
    state = cluster.partition()
    for wanted in (Wanted(), Wanted(isr=(1, 2, 3)), Wanted(PREFERRED), Wanted(replicas=(1, 2, 3), adding=())):
        assert cluster.rules().changed(cluster.topic, 0, state, wanted) is None


@pytest.mark.parametrize(("level", "leader_epoch"), [(7, 6), (11, 6), (12, 5), (27, 5)])
def test_an_isr_that_shrinks_begins_a_leader_epoch_only_below_the_level_of_kafka_3_6(
    level: int, leader_epoch: int
) -> None:
    cluster = Cluster(level=level, elr=False)
    cluster.partition()
    state = changed(cluster, Wanted(isr=(1, 2)))
    assert (state.isr, state.leader, epochs(state)) == ((1, 2), 1, (leader_epoch, 8))
    state = changed(cluster, Wanted(isr=(1, 2, 3)))
    assert (state.isr, epochs(state)) == ((1, 2, 3), (leader_epoch, 9))


def test_a_new_leader_and_none_begin_a_leader_epoch() -> None:
    cluster = Cluster()
    cluster.partition()
    state = changed(cluster, Wanted(isr=(2, 3)))
    assert (state.leader, epochs(state)) == (2, (6, 8))
    cluster.fence(2, 3)
    state = changed(cluster, Wanted())
    assert (state.leader, epochs(state)) == (-1, (7, 9))


@pytest.mark.parametrize("elr", [False, True])
def test_the_last_member_of_an_isr_is_kept_unless_there_is_an_elr(elr: bool) -> None:
    cluster = Cluster(elr=elr)
    cluster.partition(isr=[1])
    state = changed(cluster, Wanted(isr=()), without={1})
    assert state.leader == -1
    assert (state.isr, state.elr, state.last_known_elr) == (((), (1,), (1,)) if elr else ((1,), (), ()))


@pytest.mark.parametrize(
    ("isr", "elr", "new_isr", "unclean", "new_elr"),
    [
        ("123", "", "12", "", ""),  # as large as it has to be
        ("123", "", "1", "", "23"),
        ("12", "", "1", "", "2"),
        ("1", "2", "13", "", ""),
        ("1", "23", "1", "3", "2"),  # one that may have lost records
        ("12", "", "1", "2", ""),
        ("1", "2", "", "", "12"),
        ("1", "2", "", "1", "2"),
    ],
)
def test_replicas_that_leave_an_isr_that_is_too_small_stay_eligible(
    isr: str, elr: str, new_isr: str, unclean: str, new_elr: str
) -> None:
    def nodes(text: str) -> tuple[int, ...]:
        return tuple(map(int, text))

    cluster = Cluster(min_insync_replicas="2")
    cluster.partition(isr=nodes(isr), elr=nodes(elr))
    cluster.fence(1, 2, 3)  # nobody is elected
    state = changed(cluster, Wanted(isr=nodes(new_isr), unclean=nodes(unclean)))
    assert (state.isr, state.elr) == (nodes(new_isr), nodes(new_elr))


def test_without_the_feature_nobody_is_eligible_and_those_that_were_are_forgotten() -> None:
    cluster = Cluster(elr=False, min_insync_replicas="2")
    cluster.partition(isr=[1], elr=(2,), last_known_elr=(3,))
    state = changed(cluster, Wanted(isr=(1, 3)))
    assert (state.elr, state.last_known_elr) == ((), ())


def test_no_more_replicas_have_to_be_in_sync_than_there_are() -> None:
    cluster = Cluster(min_insync_replicas="5")
    cluster.partition(replicas=[1, 2], isr=[1], elr=(2,))
    assert changed(cluster, Wanted(isr=(1, 2))).elr == ()


def test_a_leader_from_the_elr_is_the_isr_and_loses_nothing() -> None:
    cluster = Cluster(min_insync_replicas="2")
    cluster.partition(isr=[], elr=(2, 3), last_known_elr=(1,))
    state = changed(cluster, Wanted())
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (2, (2,), (3,), ())
    assert not state.is_recovering


def test_an_unclean_leader_is_the_isr_and_recovers() -> None:
    cluster = Cluster(min_insync_replicas="2")
    cluster.partition(isr=[], elr=(1,), last_known_elr=(1,))
    cluster.fence(1, 2)
    assert changed(cluster, Wanted()).leader == -1
    state = changed(cluster, Wanted(UNCLEAN))
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (3, (3,), (), ())
    assert state.is_recovering
    state = changed(cluster, Wanted(is_recovering=False))
    assert (state.is_recovering, epochs(state)) == (False, (6, 9))


def test_the_leader_known_last_is_noted_when_it_is_lost_and_no_other_until_there_is_one() -> None:
    cluster = Cluster(min_insync_replicas="2")
    cluster.partition(isr=[1, 2])
    cluster.fence(1, 3)
    assert changed(cluster, Wanted(isr=(2,))).last_known_elr == ()
    cluster.fence(2)
    assert changed(cluster, Wanted(isr=())).last_known_elr == (2,)
    cluster.change(3, fenced=-1)
    assert changed(cluster, Wanted()).last_known_elr == (2,)
    cluster.change(1, fenced=-1)
    assert changed(cluster, Wanted()).last_known_elr == ()


def test_a_replica_whose_directory_is_offline_does_not_lead() -> None:
    cluster = Cluster()
    cluster.partition(directories=(b"\x77" * 16, directory(2), directory(3)))
    assert changed(cluster, Wanted()).leader == 2


@pytest.mark.parametrize("unknown", [bytes(16), bytes(15) + b"\x01"], ids=["never told", "not chosen"])
def test_a_replica_whose_directory_is_not_known_is_believed_to_be_online(unknown: bytes) -> None:
    cluster = Cluster()
    cluster.partition(directories=(unknown, directory(2), directory(3)))
    assert changed(cluster, Wanted()).leader == 1
    cluster.partition(directories=(bytes(15) + b"\x02", directory(2), directory(3)))
    assert changed(cluster, Wanted()).leader == 2, "lost"


# -- reassignment


def moving(cluster: Cluster, replicas: str, isr: str, *, adding: str = "", removing: str = "") -> PartitionState:
    def nodes(text: str) -> tuple[int, ...]:
        return tuple(map(int, text))

    return cluster.partition(nodes(replicas), nodes(isr), adding=nodes(adding), removing=nodes(removing))


@pytest.mark.parametrize(
    ("replicas", "isr", "adding", "removing", "new_isr", "is_over"),
    [
        ("4123", "123", "4", "3", "1234", True),
        ("4123", "123", "4", "3", "123", False),
        ("4123", "123", "4", "3", "34", True),
        ("412", "12", "4", "", "124", True),
        ("412", "12", "4", "", "12", False),
        # KAFKA-19975: it does not wait for a member that is to go, nor for one that only stays
        ("4123", "23", "4", "3", "24", True),
        ("4123", "13", "4", "3", "34", True),
        # KAFKA-15665: where replicas become fewer, all that stay are in sync
        ("1234", "1234", "", "34", "1234", True),
        ("1234", "134", "", "34", "134", False),
        ("1234", "34", "", "34", "34", False),
        ("51234", "34", "5", "34", "345", False),
        ("51234", "34", "5", "234", "345", False),
        ("51234", "134", "5", "234", "1345", True),
    ],
)
def test_a_reassignment_is_over_when_those_who_come_are_in_sync(
    replicas: str, isr: str, adding: str, removing: str, new_isr: str, is_over: bool
) -> None:
    cluster = Cluster(brokers=range(1, 6))
    before = moving(cluster, replicas, isr, adding=adding, removing=removing)
    state = changed(cluster, Wanted(isr=tuple(map(int, new_isr))))
    assert state.is_reassigning is not is_over
    if is_over:
        gone = set(before.removing)
        assert state.replicas == tuple(one for one in before.replicas if one not in gone)
        assert state.isr == tuple(int(one) for one in new_isr if int(one) not in gone)
        assert state.directories == tuple(directory(one) for one in state.replicas)
        assert state.leader in state.isr
        assert state.leader_epoch == 5 + bool(gone), "a replica that is gone must not be taken for one"


@pytest.mark.parametrize("level", [OLD_LEVEL, 27])
def test_a_replica_that_is_added_gets_a_directory_where_there_are_any(level: int) -> None:
    cluster = Cluster(level=level, elr=False, brokers=range(1, 5))
    cluster.partition()
    state = changed(cluster, Wanted(replicas=(4, 1, 2, 3), adding=(4,), removing=(3,)))
    assert (state.replicas, state.adding, state.removing) == ((4, 1, 2, 3), (4,), (3,))
    assert state.directories == (() if level == OLD_LEVEL else tuple(directory(one) for one in (4, 1, 2, 3)))
    assert epochs(state) == (5, 8)


def test_where_directories_were_never_told_one_is_told_for_each_replica() -> None:
    """Kafka ends over a record with fewer."""
    cluster = Cluster(brokers=range(1, 5))
    for node_id in range(1, 5):
        cluster.image.brokers[node_id].log_dirs = []
    cluster.partition(directories=())
    record = cluster.rules().changed(
        cluster.topic, 0, cluster.state(), Wanted(replicas=(4, 1, 2, 3), adding=(4,), removing=(3,))
    )
    assert record is not None
    assert record.directories == (bytes(16),) * 4
    assert cluster.after([record]).directories == ()
    assert cluster.rules().changed(cluster.topic, 0, cluster.state(), Wanted()) is None


def test_who_is_no_replica_any_more_is_not_eligible() -> None:
    cluster = Cluster(min_insync_replicas="2")
    moving(cluster, "123", "13", removing="3")
    cluster.apply()
    state = changed(cluster, Wanted(isr=(1, 2)))
    assert (state.replicas, state.elr) == ((1, 2), ())
    moving(cluster, "123", "1", removing="23")
    state = changed(cluster, Wanted(isr=(1,)))
    assert (state.replicas, state.isr, state.elr) == ((1,), (1,), ())

"""AlterPartition: the checks of CLUSTER.md 3.5, in their order, and what is answered."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_image import TOPIC_ID, Cluster

from semel.controller.isr import alter_partitions
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponsePartition,
    IsrMember,
)


def members(*node_ids: int, **epochs: int) -> list[IsrMember]:
    return [IsrMember(broker_id=one, broker_epoch=epochs.get(f"of_{one}", one * 100)) for one in node_ids]


def proposal(isr: list[IsrMember], index: int = 0, **more: Any) -> AlterPartitionRequestPartition:
    given: dict[str, Any] = {"leader_epoch": 5, "partition_epoch": 7, **more}
    return AlterPartitionRequestPartition(partition_index=index, new_isr_with_epochs=isr, **given)


def asked(
    cluster: Cluster, *proposals: AlterPartitionRequestPartition, node_id: int = 1, topic_id: bytes = TOPIC_ID
) -> list[AlterPartitionResponsePartition]:
    """What is answered; what is decided is applied."""
    request = AlterPartitionRequest(
        broker_id=node_id, topics=[AlterPartitionRequestTopic(topic_id=topic_id, partitions=list(proposals))]
    )
    records, topics = alter_partitions(cluster.rules(), request)
    cluster.apply(*records)
    assert [topic.topic_id for topic in topics] == [topic_id]
    return list(topics[0].partitions)


@pytest.mark.parametrize("isr", [(1,), (1, 2), (2, 1, 3), (1, 3)])
def test_a_leader_gets_the_isr_that_it_asks_for(isr: tuple[int, ...]) -> None:
    cluster = Cluster()
    cluster.partition(isr=[1, 2])
    (answer,) = asked(cluster, proposal(members(*isr)))
    state = cluster.state()
    assert state.isr == tuple(answer.isr) == isr
    assert (answer.error_code, answer.leader_id, answer.leader_epoch) == (0, 1, 5)
    assert answer.partition_epoch == state.partition_epoch == (7 if isr == (1, 2) else 8)


def test_older_versions_name_members_without_epochs() -> None:
    cluster = Cluster()
    cluster.partition(isr=[1, 2])
    asked(
        cluster,
        AlterPartitionRequestPartition(partition_index=0, new_isr=[1, 2, 3], leader_epoch=5, partition_epoch=7),
    )
    assert cluster.state().isr == (1, 2, 3)


@pytest.mark.parametrize(
    ("proposed", "node_id", "code"),
    [
        (proposal(members(1), index=1), 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        # KAFKA-14154: the leader knows more than we do
        (proposal(members(1), leader_epoch=6), 1, ErrorCode.NOT_CONTROLLER),
        (proposal(members(1), partition_epoch=8), 1, ErrorCode.NOT_CONTROLLER),
        (proposal(members(1), leader_epoch=4, partition_epoch=8), 1, ErrorCode.NOT_CONTROLLER),
        (proposal(members(1), leader_epoch=4), 1, ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(members(1), leader_epoch=4), 2, ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(members(2)), 2, ErrorCode.INVALID_REQUEST),
        (proposal(members(1), partition_epoch=6), 2, ErrorCode.INVALID_REQUEST),
        (proposal(members(1), partition_epoch=6), 1, ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(members(1, 4)), 1, ErrorCode.INVALID_REQUEST),
        (proposal(members(1, 2, 2)), 1, ErrorCode.INVALID_REQUEST),
        (proposal(members(2, 3)), 1, ErrorCode.INVALID_REQUEST),
        (proposal([]), 1, ErrorCode.INVALID_REQUEST),
        (proposal(members(1), leader_recovery_state=1), 1, ErrorCode.INVALID_REQUEST),
        # KAFKA-14617: of each member it has to be this incarnation
        (proposal(members(1, 2, of_2=199)), 1, ErrorCode.INELIGIBLE_REPLICA),
        (proposal(members(1, 2, of_1=99)), 1, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_is_refused_changes_nothing(
    proposed: AlterPartitionRequestPartition, node_id: int, code: ErrorCode
) -> None:
    cluster = Cluster(brokers=(1, 2, 3, 4))
    before = cluster.partition(isr=[1, 2])
    (answer,) = asked(cluster, proposed, node_id=node_id)
    assert answer.error_code == code
    assert answer.partition_index == proposed.partition_index
    assert cluster.state() == before


def test_a_topic_that_is_gone_is_not_known() -> None:
    cluster = Cluster()
    (answer,) = asked(cluster, proposal(members(1)), topic_id=b"\x99" * 16)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("what", ["fenced", "stopping", "gone"])
def test_who_is_not_active_does_not_join(what: str) -> None:
    """KAFKA-13916."""
    cluster = Cluster()
    cluster.partition(isr=[1, 2])
    if what == "gone":
        del cluster.image.brokers[3]
    else:
        cluster.change(3, **({"fenced": 1} if what == "fenced" else {"in_controlled_shutdown": 1}))
    (answer,) = asked(cluster, proposal(members(1, 2, 3, of_3=-1)))
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert cluster.state().isr == (1, 2)


@pytest.mark.parametrize(
    ("isr", "recovering", "code"), [((1,), 1, 0), ((1,), 0, 0), ((1, 2), 1, ErrorCode.INVALID_REQUEST), ((1, 2), 0, 0)]
)
def test_a_leader_that_recovers_is_alone_until_it_has(isr: tuple[int, ...], recovering: int, code: int) -> None:
    cluster = Cluster()
    cluster.partition(isr=[1], is_recovering=True)
    (answer,) = asked(cluster, proposal(members(*isr), leader_recovery_state=recovering))
    assert answer.error_code == code
    assert cluster.state().is_recovering is bool(recovering or code)
    if not code:
        assert answer.leader_recovery_state == recovering


def test_the_end_of_a_reassignment_moves_the_leader_and_says_so() -> None:
    """Written, and told as an error: the leader learns the rest from the metadata."""
    cluster = Cluster(brokers=(1, 2, 3, 4))
    cluster.partition(replicas=[4, 2, 3, 1], isr=[1, 2, 3], adding=(4,), removing=(1,))
    (answer,) = asked(cluster, proposal(members(1, 2, 3, 4)))
    state = cluster.state()
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((4, 2, 3), (2, 3, 4), 4, 6)


def test_the_end_of_a_reassignment_with_the_same_leader_is_a_success() -> None:
    cluster = Cluster(brokers=(1, 2, 3, 4))
    cluster.partition(replicas=[1, 2, 4, 3], isr=[1, 2, 3], adding=(4,), removing=(3,))
    (answer,) = asked(cluster, proposal(members(1, 2, 3, 4)))
    assert (answer.error_code, list(answer.isr), answer.leader_epoch, answer.partition_epoch) == (0, [1, 2, 4], 6, 8)


def test_each_partition_of_a_request_is_decided_on_its_own_and_once() -> None:
    cluster = Cluster()
    for index in range(3):
        cluster.partition(index=index)
    answers = asked(
        cluster,
        proposal(members(1, 2)),
        proposal(members(1), index=1, leader_epoch=4),
        proposal(members(1, 3), index=2),
        proposal(members(1), index=2),
    )
    assert [one.error_code for one in answers] == [0, ErrorCode.FENCED_LEADER_EPOCH, 0, ErrorCode.INVALID_REQUEST]
    assert [cluster.state(index).isr for index in range(3)] == [(1, 2), (1, 2, 3), (1, 3)]

"""Between the question to a coordinator on another node and the write, nothing may have ended the transaction."""

from __future__ import annotations

from typing import Any

import pytest
from across_nodes import FEW, Across
from cluster_harness import Cluster, in_a_cluster
from transaction_harness import TOPIC, V1, V2

from semel.broker.remote_joins import RemoteJoins
from semel.records.control import ControlType
from semel.wire.errors import ErrorCode

VERSIONS = pytest.mark.parametrize("versions", [V1, V2], ids=["first", "second"])
COORDINATOR, LEADER = 2, 3
PARTITION = 1


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    """Something happens on the partition's leader after the coordinator has answered."""
    ask = RemoteJoins.ask

    async def asked(self: RemoteJoins, *rest: Any, **options: Any) -> Any:
        codes = await ask(self, *rest, **options)
        await happens()
        return codes

    monkeypatch.setattr(RemoteJoins, "ask", asked)


@VERSIONS
@pytest.mark.parametrize("coordinator_epoch", [0])
@in_a_cluster(brokers=3, settings=FEW)
async def test_a_batch_that_a_marker_has_overtaken_is_not_written(
    cluster: Cluster, versions: dict[str, int], coordinator_epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written, it would hang for ever: its marker has come already."""
    across = Across(cluster)
    await across.prepared()
    producer = await across.producer(across.name_on(COORDINATOR), versions)
    if versions is V1:
        assert await producer.add(PARTITION) == 0
    leader = across.nodes[LEADER].broker

    async def marked() -> None:
        leader.markers.write_marker(
            (TOPIC, PARTITION), ControlType.ABORT, producer.producer_id, producer.epoch, coordinator_epoch, False
        )

    meanwhile(monkeypatch, marked)
    batch = producer.batch(b"too late", partition=PARTITION)
    assert await producer.send_to_leader(batch, PARTITION) == ErrorCode.NOT_ENOUGH_REPLICAS
    log = leader.topics.partition(TOPIC, PARTITION).log
    assert log.end_offset == 1, "the marker alone"
    assert log.last_stable_offset == 1
    assert not len(leader.broker_part.coordinators._guards)  # type: ignore[union-attr]


@VERSIONS
@in_a_cluster(brokers=3, settings=FEW)
async def test_a_batch_whose_epoch_was_raised_meanwhile_is_fenced_and_not_sent_again(
    cluster: Cluster, versions: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-19690: its epoch is looked at before its guard."""
    across = Across(cluster)
    await across.prepared()
    producer = await across.producer(across.name_on(COORDINATOR), versions)
    if versions is V1:
        assert await producer.add(PARTITION) == 0
    leader = across.nodes[LEADER].broker

    async def raised() -> None:
        leader.markers.write_marker(
            (TOPIC, PARTITION), ControlType.ABORT, producer.producer_id, producer.epoch + 1, 0, True
        )

    meanwhile(monkeypatch, raised)
    batch = producer.batch(b"too late", partition=PARTITION)
    assert await producer.send_to_leader(batch, PARTITION) == ErrorCode.INVALID_PRODUCER_EPOCH


@VERSIONS
@in_a_cluster(brokers=3, settings=FEW)
async def test_a_batch_is_not_written_in_a_later_term_than_it_was_asked_for(
    cluster: Cluster, versions: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    across = Across(cluster)
    await across.prepared()
    producer = await across.producer(across.name_on(COORDINATOR), versions)
    if versions is V1:
        assert await producer.add(PARTITION) == 0

    async def moved() -> None:
        await across.move(TOPIC, PARTITION, LEADER)

    meanwhile(monkeypatch, moved)
    batch = producer.batch(b"again", partition=PARTITION)
    kept = bytearray(batch)
    assert await producer.send_to_leader(batch, PARTITION) == ErrorCode.NOT_ENOUGH_REPLICAS
    monkeypatch.undo()
    assert await producer.send_to_leader(kept, PARTITION) == 0, "asked again"
    assert await producer.commit() == 0
    assert await across.read_committed(PARTITION) == [b"again"]


@in_a_cluster(brokers=3, settings=FEW)
async def test_a_decision_that_is_not_committed_yet_lets_nothing_in(cluster: Cluster) -> None:
    """KAFKA-14904: what the coordinator has appended, and no follower has, may be lost with it."""
    across = Across(cluster)
    await across.prepared()
    producer = await across.producer(across.name_on(COORDINATOR), V1)
    others = [node.name for node_id, node in across.nodes.items() if node_id not in (COORDINATOR, LEADER)]
    cluster.world.wires.part([across.nodes[COORDINATOR].name], others)
    adding = producer.client.send(producer.add_request(PARTITION), V1["add"])
    leader = await producer.to_leader(PARTITION)
    asked = leader.send(producer.produce_request({PARTITION: producer.batch(b"a", partition=PARTITION)}), V1["produce"])
    answer = (await asked).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "to come again"
    assert (await adding).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )

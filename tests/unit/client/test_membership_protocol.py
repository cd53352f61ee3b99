"""The bytes that members of a group exchange: as Kafka 4.1.1's own classes wrote them, and as other clients do."""

from __future__ import annotations

import io
from typing import Any

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer import ConsumerProtocolAssignment as KafkaPythonAssignment
from kafka.protocol.consumer import ConsumerProtocolSubscription as KafkaPythonSubscription
from kio.schema.consumer_protocol_assignment.v3 import data as kio_assignment
from kio.schema.consumer_protocol_subscription.v3 import data as kio_subscription
from kio.serial import entity_writer

from semel.client.consumer.membership.assignors import CooperativeStickyAssignor, StickyAssignor
from semel.client.consumer.membership.protocol import (
    Assignment,
    Subscription,
    assignment_bytes,
    read_assignment,
    read_subscription,
    subscription_bytes,
)
from semel.client.metadata import TopicPartition
from semel.client.values import GroupIdentity
from semel.wire.errors import WireError

OWNED = (TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("b", 2))
FULL = Subscription(("a", "b"), b"\1\2", OWNED, 7, None, "r1")
PLAIN = Subscription(("a",))
# Java sorts topics and partitions of a subscription, and so does the client before it encodes.
JAVA_SUBSCRIPTIONS = {
    0: "000000000002000161000162000000020102",
    1: "000100000002000161000162000000020102000000020001610000000100000001000162000000020000000000000002",
    2: "00020000000200016100016200000002010200000002000161000000010000000100016200000002000000000000000200000007",
    3: "000300000002000161000162000000020102000000020001610000000100000001000162000000020000000000000002"
    "0000000700027231",
}
JAVA_PLAIN = "000300000001000161ffffffff00000000ffffffffffff"
GIVEN = Assignment((TopicPartition("b", 2), TopicPartition("b", 0), TopicPartition("a", 1)), b"\x09")
JAVA_ASSIGNMENT = "00030000000200016200000002000000020000000000016100000001000000010000000109"
JAVA_STICKY = "00000002000161000000010000000100016200000002000000020000000000000005"


def test_a_subscription_is_written_as_java_writes_it() -> None:
    assert subscription_bytes(FULL).hex() == JAVA_SUBSCRIPTIONS[3]
    assert subscription_bytes(PLAIN).hex() == JAVA_PLAIN


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_of_every_version_is_read(version: int) -> None:
    expected = FULL
    if version < 3:
        expected = expected._replace(rack=None)
    if version < 2:
        expected = expected._replace(generation=-1)
    if version < 1:
        expected = expected._replace(owned=())
    read = read_subscription(bytes.fromhex(JAVA_SUBSCRIPTIONS[version]), "instance")
    assert read == expected._replace(instance_id="instance")


def test_a_subscription_newer_than_ours_is_read_as_far_as_we_know_it() -> None:
    newer = b"\0\x09" + bytes.fromhex(JAVA_SUBSCRIPTIONS[3])[2:] + b"what nobody knows yet"
    assert read_subscription(newer) == FULL


def test_an_assignment_is_written_and_read_as_java_does() -> None:
    assert assignment_bytes(GIVEN).hex() == JAVA_ASSIGNMENT
    for version in range(4):
        assert read_assignment(bytes([0, version]) + bytes.fromhex(JAVA_ASSIGNMENT)[2:]) == GIVEN


def test_no_bytes_are_no_partitions() -> None:
    assert read_assignment(b"") == Assignment()


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\2\0\1a", b"\0\0\x7f\xff\xff\xff"])
def test_a_broken_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        read_subscription(data)


def kio_bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(value))(buffer, value)
    return b"\0\3" + buffer.getvalue()


def test_subscription_and_assignment_are_kio_s() -> None:
    told = kio_subscription.ConsumerProtocolSubscription(
        topics=("a", "b"),
        user_data=b"\1\2",
        owned_partitions=(
            kio_subscription.TopicPartition(topic="a", partitions=(1,)),
            kio_subscription.TopicPartition(topic="b", partitions=(0, 2)),
        ),
        generation_id=7,
        rack_id="r1",
    )
    assert subscription_bytes(FULL) == kio_bytes(told)
    given = kio_assignment.ConsumerProtocolAssignment(
        assigned_partitions=(
            kio_assignment.TopicPartition(topic="b", partitions=(2, 0)),
            kio_assignment.TopicPartition(topic="a", partitions=(1,)),
        ),
        user_data=b"\x09",
    )
    assert assignment_bytes(GIVEN) == kio_bytes(given)


def test_kafka_python_reads_ours_and_we_read_theirs() -> None:
    theirs = KafkaPythonSubscription.decode(subscription_bytes(FULL))
    assert (theirs.topics, theirs.user_data, theirs.generation_id) == (["a", "b"], b"\1\2", 7)
    assert [(one.topic, one.partitions) for one in theirs.owned_partitions] == [("a", [1]), ("b", [0, 2])]
    for version in range(4):
        theirs = KafkaPythonSubscription(version=version, topics=["a", "b"], user_data=b"\1\2")
        assert read_subscription(theirs.encode()) == Subscription(("a", "b"), b"\1\2")
    given = KafkaPythonAssignment.decode(assignment_bytes(GIVEN))
    assert [(one.topic, one.partitions) for one in given.assigned_partitions] == [("b", [2, 0]), ("a", [1])]


def test_aiokafka_reads_ours_and_we_read_theirs() -> None:
    theirs = ConsumerProtocolMemberMetadata.decode(subscription_bytes(FULL))
    assert (theirs.subscription, theirs.user_data) == (["a", "b"], b"\1\2")
    assert read_subscription(ConsumerProtocolMemberMetadata(0, ["a"], b"").encode()) == Subscription(("a",), b"")
    given = ConsumerProtocolMemberAssignment.decode(assignment_bytes(GIVEN))
    assert given.partitions() == list(GIVEN.partitions)
    assert read_assignment(given.encode()) == GIVEN


def sticky_data() -> bytes:
    assignor = StickyAssignor()
    assignor.on_assignment(Assignment(OWNED), GroupIdentity("g", 5, "m"))
    data = assignor.subscription(frozenset(["a"]))
    assert data is not None
    return data


def test_what_sticky_adds_is_java_s_and_kafka_python_s_and_aiokafka_s() -> None:
    in_java_s_order = StickyAssignor()
    in_java_s_order.on_assignment(
        Assignment((OWNED[0], TopicPartition("b", 2), TopicPartition("b", 0))), GroupIdentity("g", 5, "m")
    )
    data = in_java_s_order.subscription(frozenset())
    assert data is not None
    assert data.hex() == JAVA_STICKY
    read = StickyAssignorUserDataV1.decode(io.BytesIO(sticky_data()))
    assert [tuple(one) for one in read.previous_assignment] == [("a", [1]), ("b", [0, 2])]
    assert read.generation == 5
    # kafka-python itself puts a version before it, which no other client does.
    theirs = StickyAssignorUserData.decode(sticky_data(), version=1, header=False)
    assert theirs.generation == 5
    assert [(one.topic, one.partitions) for one in theirs.previous_assignment] == [("a", [1]), ("b", [0, 2])]


def test_what_cooperative_sticky_adds_is_java_s() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.subscription(frozenset(["a"])) == b"\xff\xff\xff\xff"
    assignor.on_assignment(Assignment(OWNED), GroupIdentity("g", 5, "m"))
    assert assignor.subscription(frozenset(["a"])) == b"\0\0\0\5"

"""A running broker for the client's integration tests: ours always, and Apache Kafka when it is asked for.

Every test takes topics and groups of its own, since the brokers are shared: ours by a module, Kafka by the whole run.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from apache_kafka import ApacheKafka, skip_reason
from raw_client import RawClient
from real_broker import Brokers
from semel.wire.errors import ErrorCode
from semel.wire.spec.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from semel.wire.spec.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

PARTITIONS = 3
LEADERS_TIMEOUT_S = 20.0
# Sessions of the KIP-848 protocol are the broker's to choose: short ones, or a member that dies is missed for 45 s.
SHORT_SESSIONS = {
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "10000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}
# Internal topics of few partitions: each of them is a directory to make, and tests use a few groups and ids only.
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    **SHORT_SESSIONS,
}


@pytest.fixture(scope="session")
def kafka_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Starting it takes seconds: one for all modules."""
    reason = skip_reason()
    if reason is not None:
        pytest.skip(reason)
    node = ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=SHORT_SESSIONS).start()
    yield node
    node.reap()


@pytest.fixture(scope="module", params=["semel", pytest.param("kafka", marks=pytest.mark.kafka)])
def flavour(request: pytest.FixtureRequest) -> str:
    """Whose broker it is."""
    return str(request.param)


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest, flavour: str, shared_brokers: Brokers) -> str:
    """host:port of a running broker."""
    if flavour == "kafka":
        node: ApacheKafka = request.getfixturevalue("kafka_node")
        return node.address
    return shared_brokers.start(flush="os", settings=SETTINGS).address


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Makes names that no other test uses: `unique("group")`."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(address: str, unique: Callable[[str], str]) -> str:
    """A new topic of three partitions."""
    name = unique("topic")
    wanted = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
    with RawClient(int(address.rpartition(":")[2])) as client:
        answer = client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
        assert [made.error_code for made in answer.topics] == [ErrorCode.NONE]
        _wait_for_leaders(client, name)
    return name


def _wait_for_leaders(client: RawClient, topic: str) -> None:
    """Kafka names a leader a moment before that leader knows of it: a test that counts requests must not meet that."""
    partitions = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(PARTITIONS)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])
    deadline_s = time.monotonic() + LEADERS_TIMEOUT_S
    while True:
        answer = client.call(request, 5, ListOffsetsResponse)
        codes = {partition.error_code for partition in answer.topics[0].partitions}
        if codes == {ErrorCode.NONE}:
            return
        assert time.monotonic() < deadline_s, f"{topic} is not led: {codes}"
        time.sleep(0.05)

"""One Spark session and one broker for all tests here, since the first takes many seconds to start.

A test takes topics, groups and checkpoints of its own. `spark` is a session with two cores in this process.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from apache_kafka import ApacheKafka, skip_reason
from real_broker import Brokers, RealBroker
from semel.client.admin.values import NewTopic
from semel.sync import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Every Java here runs for seconds or minutes: to compile its code thoroughly would double its CPU time.
# Spark hands this on to its drivers, also to those in processes of their own.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

KEEP_OLD_RECORDS = {"log.retention.ms": "-1"}
"""Tests write records with times of long ago. Retention, which comes by every five minutes, would take them away."""
BROKER_SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    **KEEP_OLD_RECORDS,
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    home = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("semel tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    made = Brokers(tmp_path_factory.mktemp("spark-brokers"))
    yield made
    made.reap()


@pytest.fixture(scope="session")
def spark_broker(spark_brokers: Brokers) -> RealBroker:
    return spark_brokers.start(flush="os", settings=BROKER_SETTINGS)


@pytest.fixture(scope="session")
def spark_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    reason = skip_reason()
    if reason is not None:
        pytest.skip(reason)
    node = ApacheKafka(tmp_path_factory.mktemp("spark-kafka"), settings=KEEP_OLD_RECORDS).start()
    yield node
    node.reap()


@pytest.fixture(scope="session", params=["semel", pytest.param("kafka", marks=pytest.mark.kafka)])
def flavour(request: pytest.FixtureRequest) -> str:
    """Whose broker it is: ours, and Apache Kafka when it is asked for."""
    return str(request.param)


@pytest.fixture(scope="session")
def address(request: pytest.FixtureRequest, flavour: str) -> str:
    """host:port of the shared broker."""
    return str(request.getfixturevalue("spark_broker" if flavour == "semel" else "spark_kafka").address)


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Makes names that no other test uses."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(address: str, unique: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic: `new_topic(partitions=3, **{"max.message.bytes": 1000})`."""

    def create(name: str = "topic", *, partitions: int = 2, **configs: Any) -> str:
        full_name = unique(name)
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics(NewTopic(full_name, partitions=partitions, replication_factor=1, configs=configs))
        return full_name

    return create


@pytest.fixture
def producer(address: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=address, linger_ms=0) as made:
        yield made


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")

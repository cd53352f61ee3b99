"""The blocking producer loses nothing unseen: `send` raises at once, or `flush`, `commit` and the block do."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from sync_reading import read_all

import semel.sync
from real_broker import Brokers
from semel import errors
from semel.client.admin.values import NewTopic


@pytest.mark.parametrize(
    ("topic", "value", "kind"),
    [
        (None, {"amount": 10}, errors.BadRecord),
        (None, 12.5, errors.BadRecord),
        ("not a name", b"x", errors.BadRecord),
        (["a list"], b"x", errors.BadRecord),
        (None, b"x" * 5_000_000, errors.RecordTooLarge),
    ],
    ids=["a dict", "a number", "a bad name", "no name", "5 MB"],
)
def test_what_no_broker_takes_raises_in_send_and_the_others_are_written(
    address: str, topic: str, unique: Callable[[str], str], value: object, kind: type[errors.SemelError]
) -> None:
    name = unique("topic") if topic is None else topic
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        for _ in range(2):  # to a topic that is not known yet, and to one that is
            with pytest.raises(kind):
                producer.send(name, value)
            producer.send_and_wait(name if topic is None else unique("good"), b"good")


@pytest.mark.parametrize(
    "arguments",
    [{"partition": -1}, {"partition": "1"}, {"timestamp_ms": "now"}, {"headers": [("name", "text")]}, {"key": 5}],
    ids=repr,
)
def test_what_is_wrong_beside_the_value_raises_in_send(address: str, topic: str, arguments: dict[str, object]) -> None:
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        producer.send_and_wait(topic, b"good")
        with pytest.raises(errors.BadRecord):
            producer.send(topic, b"x", **arguments)


def test_a_limit_below_the_usual_one_is_kept_in_send(address: str, topic: str) -> None:
    with semel.sync.Producer(bootstrap_servers=address, max_request_size=1000) as producer:
        producer.send_and_wait(topic, b"good")
        with pytest.raises(errors.RecordTooLarge):
            producer.send(topic, b"x" * 950)


def test_serializers_and_a_partitioner_work_on_what_the_program_gave(address: str, topic: str) -> None:
    threads: set[str] = set()

    def serialize(value: int) -> bytes:
        threads.add(threading.current_thread().name)
        return b"%d" % value

    def choose(topic: str, key: object, value: object, partitions: list[int]) -> int:
        assert isinstance(value, int)
        return value % len(partitions)

    settings = {"value_serializer": serialize, "partitioner": choose}
    with semel.sync.Producer(bootstrap_servers=address, **settings) as producer:
        with pytest.raises(errors.BadRecord, match="value serializer failed on a str"):
            producer.send(topic, "no number")
        assert [producer.send_and_wait(topic, number).partition for number in (1, 2)] == [1, 2]
    assert threads == {threading.current_thread().name}
    assert {message.value for message in read_all(address, topic, 2)} == {b"1", b"2"}


def test_a_partitioner_that_fails_is_raised_and_the_others_are_written(address: str, topic: str) -> None:
    """It runs on the loop's thread, whose work must go on."""

    def choose(topic: str, key: object, value: object, partitions: list[int]) -> int:
        return {b"good": 1}[value]  # type: ignore[index]

    with semel.sync.Producer(bootstrap_servers=address, partitioner=choose) as producer:
        producer.send(topic, b"bad")
        delivery = producer.send(topic, b"good")
        with pytest.raises(errors.BadRecord, match="the partitioner failed"):
            producer.flush()
        assert delivery.result().partition == 1


def fail(producer: semel.sync.Producer, topic: str) -> semel.sync.Delivery:
    """Something that only the cluster can tell."""
    return producer.send(topic, b"x", partition=77)


def test_what_fails_later_is_raised_by_flush_and_once(address: str, topic: str) -> None:
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        fail(producer, topic)
        producer.send(topic, b"good")
        fail(producer, topic)
        with pytest.raises(errors.BadRecord, match="not 77; 1 other record was not delivered"):
            producer.flush()
        producer.flush()


def test_what_fails_later_is_raised_by_the_end_of_the_block_and_by_close(address: str, topic: str) -> None:
    with pytest.raises(errors.BadRecord, match="not 77"), semel.sync.Producer(bootstrap_servers=address) as producer:
        fail(producer, topic)
    producer = semel.sync.Producer(bootstrap_servers=address)
    fail(producer, topic)
    with pytest.raises(errors.BadRecord, match="not 77"):
        producer.close()
    producer.close()


def test_a_record_that_its_topic_refuses_is_raised_by_the_end_of_the_block(
    address: str, unique: Callable[[str], str]
) -> None:
    """Only the broker knows the limit of the topic."""
    name = unique("narrow")
    with semel.sync.Admin(bootstrap_servers=address) as admin:
        admin.create_topics(NewTopic(name, configs={"max.message.bytes": "1000"}))
    with pytest.raises(errors.RecordTooLarge), semel.sync.Producer(bootstrap_servers=address) as producer:
        producer.send(name, b"x" * 2000)


@pytest.fixture(scope="module")
def strict_address(shared_brokers: Brokers) -> str:
    """Of a broker that makes no topics by itself."""
    return shared_brokers.start(flush="os", settings={"auto.create.topics.enable": "false"}).address


def test_records_for_a_topic_that_is_not_there_wait_for_it_once(strict_address: str) -> None:
    """Not one after the other, each for max.block.ms."""
    with semel.sync.Producer(bootstrap_servers=strict_address, max_block_ms=1500) as producer:
        began_s = time.monotonic()
        for _ in range(20):
            producer.send("missing", b"x")
        with pytest.raises(errors.UnknownTopic, match="19 other records were not delivered"):
            producer.flush()
        assert time.monotonic() - began_s < 10


def test_to_close_takes_no_longer_than_it_may(strict_address: str) -> None:
    """Though records still wait for their topic: they are lost, and that is raised."""
    producer = semel.sync.Producer(bootstrap_servers=strict_address)
    deliveries = [producer.send(name, b"x") for name in ("missing", "missing", "another")]
    began_s = time.monotonic()
    with pytest.raises(errors.Closed, match="2 other records were not delivered"):
        producer.close(1)
    assert time.monotonic() - began_s < 10
    assert all(isinstance(delivery.exception(), errors.Closed) for delivery in deliveries)


def test_what_the_program_has_looked_at_is_not_raised_again(address: str, topic: str) -> None:
    called: list[semel.sync.Delivery] = []
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        assert isinstance(fail(producer, topic).exception(), errors.BadRecord)
        delivery = fail(producer, topic)
        with pytest.raises(errors.BadRecord):
            delivery.result()
        assert delivery.exception() is delivery.exception()
        producer.send(topic, b"x", partition=77, on_delivery=called.append)
        producer.flush()
    assert len(called) == 1


def test_threads_that_wait_for_their_records_see_them(address: str, topic: str) -> None:
    """Beside a thread that flushes all the time."""
    seen: list[errors.SemelError | None] = []
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        threads = [
            threading.Thread(target=lambda: seen.append(fail(producer, topic).exception(timeout_s=30)))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    assert [type(error) for error in seen] == [errors.BadRecord] * 20


def test_an_exception_of_the_program_is_not_masked(address: str, topic: str) -> None:
    def in_a_block() -> None:
        with semel.sync.Producer(bootstrap_servers=address) as producer:
            fail(producer, topic)
            raise KeyError("of the program")

    def with_a_finally() -> None:
        producer = semel.sync.Producer(bootstrap_servers=address)
        try:
            fail(producer, topic)
            raise KeyError("of the program")
        finally:
            producer.close()

    for program in (in_a_block, with_a_finally):
        with pytest.raises(KeyError) as raised:
            program()
        assert "records were not delivered either" in raised.value.__notes__[0]


def test_a_commit_and_the_block_of_a_transaction_say_it_and_nothing_says_it_twice(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    def transact() -> None:
        with producer.transaction():
            producer.send(topic, b"never", partition=0)
            fail(producer, topic)

    with semel.sync.Producer(bootstrap_servers=address, transactional_id=unique("id")) as producer:
        with pytest.raises(errors.BadRecord, match="not 77"):
            transact()
        with producer.transaction():
            producer.send(topic, b"last", partition=0)
    values = [message.value for message in read_all(address, topic, 1, isolation_level="read_committed")]
    assert values == [b"last"]


def test_without_a_transaction_a_transactional_producer_takes_nothing(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    with semel.sync.Producer(bootstrap_servers=address, transactional_id=unique("id")) as producer:
        with pytest.raises(errors.IllegalState, match="call init_transactions first"):
            producer.send(topic, b"x")
        with producer.transaction():
            producer.send(topic, b"x", partition=0)
        with pytest.raises(errors.IllegalState, match="call begin first"):
            producer.send(topic, b"x")


def test_a_program_that_forgets_to_close_is_told_what_it_lost(address: str, topic: str) -> None:
    program = (
        "import semel.sync, sys\n"
        "producer = semel.sync.Producer(bootstrap_servers=sys.argv[1])\n"
        "producer.send(sys.argv[2], b'lost', partition=77)\n"
    )
    command = [sys.executable, "-c", program, address, topic]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert "a producer that was still open at the end of the program" in done.stderr
    assert "not 77" in done.stderr


def test_a_program_that_loses_records_ends_badly(address: str, topic: str) -> None:
    program = (
        "import semel.sync, sys\n"
        "with semel.sync.Producer(bootstrap_servers=sys.argv[1]) as producer:\n"
        "    producer.send(sys.argv[2], b'lost', partition=77)\n"
    )
    command = [sys.executable, "-c", program, address, topic]
    done = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == 1
    assert "BadRecord" in done.stderr

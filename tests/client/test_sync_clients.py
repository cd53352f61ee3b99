"""The blocking producer, consumer and admin, from threads that know nothing of asyncio."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from sync_reading import read_all

import semel
import semel.sync
from semel import errors
from semel.client.admin.values import NewTopic
from semel.sync import loop_thread


def test_what_is_sent_is_read_in_order(address: str, topic: str) -> None:
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        deliveries = [producer.send(topic, b"%d" % number, partition=1) for number in range(25_000)]
        producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(25_000))
    values = [message.value for message in read_all(address, topic, 25_000)]
    assert values == [b"%d" % number for number in range(25_000)]


def test_closing_delivers_what_was_sent(address: str, topic: str) -> None:
    with semel.sync.Producer(bootstrap_servers=address, linger_ms=20_000) as producer:
        delivery = producer.send(topic, b"late", partition=0)
    assert delivery.done()
    assert [message.value for message in read_all(address, topic, 1)] == [b"late"]


def test_a_program_that_forgets_to_close_still_delivers(address: str, topic: str) -> None:
    program = (
        "import semel.sync, sys\n"
        "producer = semel.sync.Producer(bootstrap_servers=sys.argv[1], linger_ms=20000)\n"
        "producer.send(sys.argv[2], b'forgotten', partition=0)\n"
    )
    subprocess.run([sys.executable, "-c", program, address, topic], check=True, timeout=60)
    assert [message.value for message in read_all(address, topic, 1)] == [b"forgotten"]


def test_several_threads_share_one_producer(address: str, topic: str) -> None:
    def send(name: int) -> None:
        for number in range(500):
            producer.send(topic, b"%d %d" % (name, number), partition=0)

    with semel.sync.Producer(bootstrap_servers=address) as producer:
        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [message.value for message in read_all(address, topic, 2000)]
    for name in range(4):
        mine = [value for value in values if value.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, number) for number in range(500)]


def test_a_transaction_block_commits_or_aborts(address: str, topic: str, unique: Callable[[str], str]) -> None:
    with semel.sync.Producer(bootstrap_servers=address, transactional_id=unique("id")) as producer:
        with producer.transaction():
            producer.send(topic, b"committed", partition=0)
        with suppress(KeyError), producer.transaction():
            producer.send(topic, b"aborted", partition=0)
            raise KeyError("of the program")
        with producer.transaction():
            producer.send(topic, b"the last", partition=0)
    values = [message.value for message in read_all(address, topic, 2, isolation_level="read_committed")]
    assert values == [b"committed", b"the last"]


def test_a_record_that_could_not_be_taken_fails_its_transaction(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    """`send` does not wait, so `commit` has to say it: otherwise a part of the transaction would be missing."""
    with semel.sync.Producer(bootstrap_servers=address, transactional_id=unique("id")) as producer:
        producer.begin()
        producer.send(topic, b"good", partition=0)
        delivery = producer.send(topic, b"nowhere to go", partition=77)
        with pytest.raises(errors.BadRecord):
            producer.commit()
        assert isinstance(delivery.exception(), errors.BadRecord)
        producer.abort()
        with producer.transaction():
            producer.send(topic, b"again", partition=0)
    values = [message.value for message in read_all(address, topic, 1, isolation_level="read_committed")]
    assert values == [b"again"]


def test_who_leaves_the_loop_early_gets_the_rest_the_next_time(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        for number in range(90):
            producer.send(topic, b"%d" % number, partition=number % 3)
    seen: list[bytes] = []
    for wanted in (1, 40, 49):
        with semel.sync.Consumer(
            topic, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            for message in consumer:
                seen.append(message.value)
                wanted -= 1
                if wanted == 0:
                    break
    assert sorted(seen, key=int) == [b"%d" % number for number in range(90)]


def test_after_an_error_what_was_handed_out_last_is_read_again(
    address: str, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number, partition=0)
    settings = {"bootstrap_servers": address, "group_id": group, "auto_offset_reset": "earliest"}
    with suppress(KeyError), semel.sync.Consumer(topic, **settings) as consumer:
        while not consumer.poll(timeout_ms=1000):
            pass
        raise KeyError("the program failed on it")
    with semel.sync.Consumer(topic, **settings) as consumer:
        assert next(iter(consumer)).value == b"0"


def test_the_admin_and_errors_reach_the_caller(address: str, unique: Callable[[str], str]) -> None:
    name = unique("made")
    with semel.sync.Admin(bootstrap_servers=address) as admin:
        admin.create_topics(NewTopic(name, partitions=2))
        assert len(admin.describe_topics(name)[name].partitions) == 2
        with pytest.raises(errors.SemelError, match="TOPIC_ALREADY_EXISTS"):
            admin.create_topics(NewTopic(name, partitions=2))


def test_a_blocking_call_from_a_callback_is_refused_and_not_a_deadlock(address: str, topic: str) -> None:
    refused: list[BaseException] = []

    def block(delivery: semel.sync.Delivery) -> None:
        try:
            producer.flush()
        except BaseException as error:
            refused.append(error)

    with semel.sync.Producer(bootstrap_servers=address) as producer:
        producer.send(topic, b"x", partition=0, on_delivery=block)
        producer.flush()
    assert len(refused) == 1
    assert isinstance(refused[0], errors.IllegalState)


def test_a_closed_one_says_so(address: str, topic: str) -> None:
    producer = semel.sync.Producer(bootstrap_servers=address)
    producer.close()
    producer.close()
    with pytest.raises(errors.IllegalState, match="closed"):
        producer.send(topic, b"x")
    with pytest.raises(errors.IllegalState, match="closed"):
        producer.flush()


def test_the_thread_ends_with_the_last_user(address: str) -> None:
    with semel.sync.Admin(bootstrap_servers=address), semel.sync.Admin(bootstrap_servers=address):
        assert [thread.name for thread in threading.enumerate()].count("semel") == 1
    assert loop_thread._shared is None
    assert "semel" not in [thread.name for thread in threading.enumerate()]


def test_after_a_fork_the_child_makes_its_own(address: str, topic: str) -> None:
    """As Spark's workers do: the parent's client is refused in the child, a new one works."""
    with semel.sync.Producer(bootstrap_servers=address) as producer:
        producer.send_and_wait(topic, b"parent", partition=0)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    producer.send(topic, b"never", partition=0)
                except errors.IllegalState:
                    with semel.sync.Producer(bootstrap_servers=address) as own:
                        own.send_and_wait(topic, b"child", partition=0)
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send_and_wait(topic, b"parent again", partition=0)
    assert [message.value for message in read_all(address, topic, 3)] == [b"parent", b"child", b"parent again"]


def test_nobody_there_is_told_with_the_address() -> None:
    with pytest.raises(errors.Disconnected, match=r"127\.0\.0\.1:1 .*is it running"):
        semel.sync.Producer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=300)
    assert loop_thread._shared is None

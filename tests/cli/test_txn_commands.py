"""`semel txn` on running brokers: what is open, who holds readers back, and the command that ends it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from command_calls import Semel

from raw_client import RawClient, produce_request
from real_broker import Brokers
from semel.cli.failures import Exit
from semel.client.errors import SemelError
from semel.client.metadata import TopicPartition
from semel.records.build import build_batch
from semel.sync import Consumer, Producer
from semel.wire.spec.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel.wire.spec.produce import ProduceResponse

Unique = Callable[[str], str]
OpenOne = Callable[..., Producer]


@pytest.fixture
def open_one(semel: Semel) -> Iterator[OpenOne]:
    """Opens a transaction with a record in partition 0: `open_one(transactional_id, topic)`."""
    with ExitStack() as stack:

        def begin(transactional_id: str, topic: str, value: bytes = b"open") -> Producer:
            producer = Producer(bootstrap_servers=semel.address, transactional_id=transactional_id)
            stack.callback(producer.close, 5.0)
            producer.begin()
            producer.send(topic, value, partition=0).result(30.0)
            return producer

        yield begin


def test_an_open_transaction_is_listed_and_described(
    semel: Semel, topic: str, unique: Unique, open_one: OpenOne
) -> None:
    name = unique("id")
    producer = open_one(name, topic)
    row = next(line for line in semel("txn", "list").lines if line.startswith(name)).split()
    assert row[:2] == [name, "Ongoing"]
    assert row[-1] == "1"
    (found,) = semel("txn", "list", "--pattern", name, "--state", "Ongoing", "--json").document
    assert found["partitions"] == [f"{topic}/0"]
    assert 0 <= found["age_ms"] < 60_000
    nothing = semel("txn", "list", "--pattern", name, "--longer-than", "1h")
    assert (nothing.out, nothing.err) == (
        "",
        f"there is no transaction open for longer than 1 h, with an id like {name}\n",
    )
    assert semel("txn", "list", "--state", "PrepareAbort").err == "there is no transaction in state PrepareAbort\n"
    lines = semel("txn", "describe", name).lines
    assert lines[0].split() == ["transactional", "id", name]
    assert lines[1].split() == ["state", "Ongoing"]
    producer.commit()
    assert semel("txn", "list", "--pattern", name, "--state", "Ongoing", "--json").document == []
    (described,) = semel("txn", "describe", name, "--json").document
    assert described["age_ms"] is None, "nothing is open any more"


def test_an_id_that_is_not_there_is_told_beside_those_that_are(semel: Semel, topic: str, unique: Unique) -> None:
    name, nobody = unique("id"), unique("nobody")
    semel("produce", topic, "x", "--transactional-id", name)
    for arguments in (("describe", nobody), ("abort", nobody)):
        called = semel("txn", *arguments, code=Exit.NOT_FOUND)
        assert f"there is no transactional id '{nobody}'; semel txn list shows" in called.err
    both = semel("txn", "describe", name, nobody, code=Exit.NOT_FOUND)
    assert both.lines[0].split() == ["transactional", "id", name]
    assert nobody not in semel("txn", "list").out, "looking for it did not make it"


def test_who_holds_readers_back_is_named_with_the_command_that_ends_it(
    semel: Semel, topic: str, unique: Unique, open_one: OpenOne
) -> None:
    name = unique("my id")
    semel("produce", topic, "before", "--partition", "0")
    producer = open_one(name, topic)
    semel("produce", topic, "behind", "--partition", "0")
    read = semel("consume", topic)
    assert read.lines == ["before"]
    assert f"an open transaction holds back {topic}/0 at offset 1, 2 before its end" in read.err
    assert f"semel txn why-stuck {topic}/0 --bootstrap {semel.address}" in read.err
    assert "holds back partition 0" in semel("topic", "describe", topic).err

    told = semel("txn", "why-stuck", f"{topic}/0").out
    assert f"{topic}/0: readers of committed records stop at offset 1; 2 offsets up to 3 wait" in told
    facts = dict(line.strip().split("  ", 1) for line in told.splitlines() if line.startswith("  "))
    assert facts["transactional id"].strip() == name
    assert facts["open since"].strip().startswith("offset 1, ")
    assert facts["ends by itself"].strip().startswith("in ")
    (document,) = semel("txn", "why-stuck", f"{topic}/0", "--json").document
    (one,) = document["transactions"]
    assert (one["transactional_id"], one["start_offset"], one["hangs"], one["state"]) == (name, 1, False, "Ongoing")
    assert facts["producer"].strip() == f"id {one['producer_id']}, epoch {one['producer_epoch']}"
    assert facts["to end it now"].strip() == one["command"]

    _, *command = shlex.split(one["command"])
    assert command == ["txn", "abort", name, "--bootstrap", semel.address]
    assert semel(*command[:-2]).out == f"aborted the transaction of {name}; its producer is fenced\n"
    assert "nothing is stuck" in semel("txn", "why-stuck", f"{topic}/0").out
    assert semel("consume", topic).lines == ["before", "behind"]
    with pytest.raises(SemelError):
        producer.commit()


def test_younger_transactions_behind_it_are_named_too(
    semel: Semel, topic: str, unique: Unique, open_one: OpenOne
) -> None:
    first, second = unique("first"), unique("second")
    open_one(first, topic)
    open_one(second, topic)
    documents = semel("txn", "why-stuck", topic, "--json").document

    assert [one["place"] for one in documents] == [f"{topic}/{number}" for number in range(3)]
    assert [one["transactional_id"] for one in documents[0]["transactions"]] == [first, second]
    assert documents[1]["transactions"] == []
    lines = semel("txn", "why-stuck", f"{topic}/0").lines
    assert "  behind it 1 younger one, to be ended too:" in lines
    assert lines[-1].split()[:1] == [second]


def test_the_client_is_named_when_the_transaction_commits_offsets_of_its_group(
    semel: Semel, topic: str, unique: Unique, open_one: OpenOne
) -> None:
    group = unique("group")
    settings = {"bootstrap_servers": semel.address, "group_id": group, "enable_auto_commit": False}
    with Consumer(topic, client_id="till-7", **settings) as consumer:
        while not consumer.assignment():
            consumer.poll(100)
        producer = open_one(unique("id"), topic)
        producer.send_offsets_to_transaction({TopicPartition(topic, 1): 0}, consumer.group_metadata())
        (document,) = semel("txn", "why-stuck", f"{topic}/0", "--json").document
        told = semel("txn", "why-stuck", f"{topic}/0").out
        producer.abort()

    assert document["transactions"][0]["clients"] == [{"group": group, "client_id": "till-7", "host": "127.0.0.1"}]
    assert f"probably till-7 at 127.0.0.1 (group {group})" in told


def test_fencing_an_id_without_an_open_transaction_says_so(semel: Semel, topic: str, unique: Unique) -> None:
    name = unique("id")
    semel("produce", topic, "x", "--transactional-id", name)

    assert semel("txn", "abort", name).out.startswith(f"{name} had no open transaction (CompleteCommit)")
    assert semel("txn", "abort", name, "--json").document["transactional_id"] == name


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("x", "--producer-id", "1"), Exit.WRONG_CALL, "--producer-id goes with --hanging"),
        (("--hanging", "{topic}/0"), Exit.WRONG_CALL, "--hanging needs --producer-id"),
        (("--hanging", "{topic}", "--producer-id", "1"), Exit.WRONG_CALL, "which partition?"),
        (("--hanging", "{topic}/3", "--producer-id", "1"), Exit.NOT_FOUND, "has no partition 3"),
        (("--hanging", "{topic}/0", "--producer-id", "1"), Exit.NOT_FOUND, "producer 1 has no open transaction in"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_wrong_abort_is_told(semel: Semel, topic: str, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    assert sentence in semel("txn", "abort", *(part.format(topic=topic) for part in arguments), code=code).err


def test_a_transaction_that_its_coordinator_ends_is_not_taken_for_a_hanging_one(
    semel: Semel, topic: str, unique: Unique, open_one: OpenOne
) -> None:
    name = unique("id")
    open_one(name, topic)
    (document,) = semel("txn", "why-stuck", f"{topic}/0", "--json").document
    producer_id = str(document["transactions"][0]["producer_id"])
    refused = semel("txn", "abort", "--hanging", f"{topic}/0", "--producer-id", producer_id, code=Exit.FAILED)

    assert f"does not hang: its coordinator ends it. To abort it now: semel txn abort {name}" in refused.err


@pytest.fixture
def careless(brokers: Brokers, semel: Semel) -> Semel:
    """On a broker that does not ask coordinators before it writes, so that a transaction can hang."""
    settings = {"transaction.partition.verification.enable": "false", "offsets.topic.num.partitions": "1"}
    settings["transaction.state.log.num.partitions"] = "1"
    semel.address = brokers.start(flush="os", settings=settings).address
    return semel


@pytest.mark.parametrize("flavour", ["semel"], indirect=True, scope="module")
def test_a_hanging_transaction_is_told_as_such_and_ended_by_the_command_shown(careless: Semel, unique: Unique) -> None:
    semel, name = careless, unique("hanging")
    semel("produce", name, "x", "--transactional-id", name)
    with RawClient(int(semel.address.rpartition(":")[2])) as client:
        asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        made = client.call(asked, 4, InitProducerIdResponse)
        assert made.error_code == 0
    write_without_joining(semel, name, made.producer_id, made.producer_epoch)
    told = semel("txn", "why-stuck", f"{name}/0")
    (one,) = semel("txn", "why-stuck", f"{name}/0", "--json").document[0]["transactions"]
    assert one["hangs"]
    assert "never: no coordinator will end it here" in told.out
    _, *command = shlex.split(one["command"])
    assert command[2:6] == ["--hanging", f"{name}/0", "--producer-id", str(made.producer_id)]
    assert semel(*command[:-2]).out.endswith("open since offset 2\n")
    assert "nothing is stuck" in semel("txn", "why-stuck", f"{name}/0").out


@pytest.mark.parametrize("flavour", ["semel"], indirect=True, scope="module")
def test_a_hanging_transaction_that_may_be_committed_is_not_aborted_but_shown(careless: Semel, unique: Unique) -> None:
    semel, name = careless, unique("hanging")
    semel("produce", name, "x", "--transactional-id", name)
    (known,) = semel("txn", "describe", name, "--json").document
    assert known["state"] == "CompleteCommit"
    producer_id = known["producer_id"]
    write_without_joining(semel, name, producer_id, known["producer_epoch"])
    told = semel("txn", "why-stuck", f"{name}/0")
    assert "its coordinator has committed the last transaction of this producer" in told.out
    (one,) = semel("txn", "why-stuck", f"{name}/0", "--json").document[0]["transactions"]
    assert one["hangs"]
    place = ("--hanging", f"{name}/0", "--producer-id", str(producer_id))
    refused = semel("txn", "abort", *place, code=Exit.FAILED)
    assert "an abort loses what was acknowledged" in refused.err
    _, *command = shlex.split(one["command"])
    assert command[:6] == ["txn", "commit", *place]
    assert semel(*command[:-2]).out.startswith(f"committed the transaction of producer {producer_id} in {name}/0")
    assert [line.split()[-1] for line in semel("consume", name, "--isolation", "committed").lines] == ["x", "lost"]
    semel("txn", "commit", *place, code=Exit.NOT_FOUND)


@pytest.mark.parametrize("flavour", ["semel"], indirect=True, scope="module")
def test_only_what_a_coordinator_has_committed_is_committed_by_hand(careless: Semel, unique: Unique) -> None:
    semel, name = careless, unique("hanging")
    semel("produce", name, "x", "--transactional-id", name)
    (known,) = semel("txn", "describe", name, "--json").document
    place = ("--hanging", f"{name}/0", "--producer-id", str(known["producer_id"]))
    write_without_joining(semel, name, known["producer_id"], known["producer_epoch"] + 1)
    assert (
        "no coordinator has committed the transaction of producer"
        in semel("txn", "commit", *place, code=Exit.FAILED).err
    )
    assert semel("txn", "abort", *place).out.startswith("aborted the transaction")


def write_without_joining(semel: Semel, name: str, producer_id: int, producer_epoch: int) -> None:
    """A transactional batch that no coordinator was told of."""
    batch = build_batch(
        [b"lost"],
        base_timestamp_ms=1_700_000_000_000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    request = produce_request(name, 0, batch)
    request.transactional_id = name
    with RawClient(int(semel.address.rpartition(":")[2])) as client:
        written = client.call(request, 9, ProduceResponse).responses[0].partition_responses[0]
    assert written.error_code == 0

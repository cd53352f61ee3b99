"""`semel pipeline run` from the outside: an embedded broker, progress, Ctrl-C, errors and exit codes."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pipeline_command import OnTerminal, call, eventually, processes_with

from semel.sync import Consumer, Producer

pytestmark = pytest.mark.spark

DOUBLES = """
name = "{name}"
sql = "SELECT id, amount * 2 AS doubled FROM input"
dead_letter_topic = "bad"
[source]
topics = ["orders"]
format = "json"
schema = "id BIGINT NOT NULL, amount DOUBLE"
[sink]
topic = "doubled"
key = "id"
[spark]
master = "local[2]"
"""


@pytest.fixture
def name() -> str:
    """Also in the command lines of its Java and its broker, and so to be found there."""
    return f"pipeline-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def run() -> Iterator[Callable[..., OnTerminal]]:
    started: list[OnTerminal] = []

    def start(*arguments: str, **variables: str) -> OnTerminal:
        started.append(OnTerminal("run", *arguments, **variables))
        return started[-1]

    yield start
    for one in started:
        one.reap()


def send(address: str, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=address) as producer:
        for value in values:
            producer.send(topic, value)


def read(address: str, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with Consumer(topic, bootstrap_servers=address, **settings) as consumer:
        deadline_s = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline_s:
            for messages in consumer.poll(timeout_ms=500).values():
                found += [message.value or b"" for message in messages]
    return found


def test_a_file_is_enough_and_ctrl_c_ends_it_cleanly_and_nothing_is_written_twice(
    tmp_path: Path, name: str, run: Callable[..., OnTerminal]
) -> None:
    file = tmp_path / "doubles.toml"
    file.write_text(DOUBLES.format(name=name))
    first = run(str(file))
    address = first.wait_for(r"no address is given: an embedded broker runs at (\S+), its data is in")[1]
    first.wait_for(rf"{name} runs: from orders to doubled, checkpoint {tmp_path}")
    send(address, "orders", b'{"id":1,"amount":5}', b"junk", b'{"id":2,"amount":6}')
    first.wait_for(r"batch \d+  3 rows in  2 out  1 set aside  [\d,]+ rows/s  lag (0|unknown)  [\d.]+ s")

    status = call("status", str(file), "--json")
    told = json.loads(status.stdout)
    assert (told["fits"], told["lag"], told["marker"]["record_count"]) == (True, 0, 3)

    first.press_ctrl_c()
    first.wait_for("stopping at the end of this batch; once more ends it at once")
    assert first.end() == 0, first.text
    assert re.search(r"\d+ batch(es)?, 3 rows in, 2 rows out, 1 set aside\r\n$", first.text), first.text
    eventually(lambda: not processes_with(name), "Java and the broker have ended")

    again = call("run", str(file), "--available-now")
    assert again.returncode == 0, again.stderr
    assert again.stderr == ""
    assert again.stdout.splitlines()[-1].startswith("0 batches"), again.stdout

    # The broker is not running: it is started for the look.
    stopped = call("status", str(tmp_path / f"{name}.checkpoint"))
    assert stopped.returncode == 0, stopped.stderr
    assert re.search(r"^marker      batch \d+, 3 records, as sink-", stopped.stdout, re.MULTILINE), stopped.stdout
    assert re.search(r"^orders +0 +3 +3 +0$", stopped.stdout, re.MULTILINE), stopped.stdout
    eventually(lambda: not processes_with(name), "the broker has ended again")

    third = run(str(file))
    address = third.wait_for(r"embedded broker runs at (\S+),")[1]
    assert sorted(read(address, "doubled", 3)) == [b'{"id":1,"doubled":10.0}', b'{"id":2,"doubled":12.0}']
    assert read(address, "bad", 1) == [b"junk"]
    third.kill()
    third.end()
    eventually(lambda: not processes_with(name), "Java and the broker end if the pipeline is killed")


def test_the_second_ctrl_c_ends_it_at_once_and_the_batch_is_written_by_the_next_run(
    tmp_path: Path, name: str, address: str, new_topic: Callable[..., str], run: Callable[..., OnTerminal]
) -> None:
    source, sink, bad = (new_topic(part, partitions=1) for part in ("orders", "doubled", "bad"))
    file = tmp_path / "doubles.toml"
    text = DOUBLES.format(name=name).replace('"orders"', f'"{source}"').replace('"doubled"', f'"{sink}"')
    file.write_text(f'address = "{address}"\n' + text.replace('"bad"', f'"{bad}"'))
    send(address, source, b'{"id":1,"amount":5}')
    held = tmp_path / "held"

    first = run(str(file), SEMEL_SPARK_STEP=f"marker-read:pause={held}")
    eventually(held.exists, "the commit of the first batch has begun", timeout_s=150)
    first.press_ctrl_c()
    first.wait_for("stopping at the end of this batch")
    asked_s = time.monotonic()
    first.press_ctrl_c()
    assert first.end(timeout_s=5) == 130
    assert time.monotonic() - asked_s < 5
    held.unlink()
    eventually(lambda: not processes_with(name), "Java has ended")
    assert call("status", str(file), "--json").returncode == 0

    again = call("run", str(file), "--available-now")
    assert again.returncode == 0, again.stderr
    assert read(address, sink, 1) == [b'{"id":1,"doubled":10.0}']


def test_what_is_wrong_is_told_with_its_exit_code(
    tmp_path: Path, name: str, address: str, new_topic: Callable[..., str]
) -> None:
    source, sink = new_topic("orders", partitions=1), new_topic("doubled", partitions=1)
    text = DOUBLES.format(name=name).replace('dead_letter_topic = "bad"\n', "")
    text = f'address = "{address}"\n' + text.replace('"orders"', f'"{source}"').replace('"doubled"', f'"{sink}"')
    file = tmp_path / "doubles.toml"

    file.write_text(text.replace(source, f"{source}x"))
    unknown = call("run", str(file))
    assert unknown.returncode == 2
    assert unknown.stderr == (
        f"semel pipeline: {file}: source.topics: topic '{source}x' does not exist at {address}; "
        f"the nearest is '{source}'; create_topics = true would make it\n"
    )

    file.write_text(text.replace("SELECT id,", "SELEC id,").replace("BIGINT NOT", "BIGINTT NOT"))
    wrong = call("run", str(file), "--check")
    assert wrong.returncode == 2
    assert f"{file}: source.schema: " in wrong.stderr
    assert "BIGINTT" in wrong.stderr
    assert "sql: [PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'" in wrong.stderr
    assert "^^^" in wrong.stderr

    file.write_text(text)
    right = call("run", str(file), "--check")
    assert (right.returncode, right.stderr) == (0, "")
    assert not (tmp_path / f"{name}.checkpoint").exists(), "nothing was run"

    send(address, source, b'{"id":1}', b"junk")
    bad = call("run", str(file), "--available-now")
    assert bad.returncode == 1
    assert bad.stderr == (
        f"semel pipeline: a record cannot be read: topic {source}, partition 0, offset 1: "
        "it is not one JSON object of the schema; its value is junk\n"
    )


def test_a_cluster_that_does_not_answer_is_told(tmp_path: Path, name: str) -> None:
    file = tmp_path / "doubles.toml"
    file.write_text('address = "127.0.0.1:1"\n' + DOUBLES.format(name=name))
    done = call("run", str(file))

    assert done.returncode == 1
    assert done.stderr.startswith("semel pipeline: the cluster at 127.0.0.1:1 does not answer: ")


def test_a_python_file_runs_with_its_neighbours_and_functions_in_the_workers(
    tmp_path: Path, name: str, address: str, new_topic: Callable[..., str]
) -> None:
    source, sink = new_topic("talk", partitions=1), new_topic("shouting", partitions=1)
    (tmp_path / f"words_{name[-12:]}.py").write_text("def loud(value):\n    return value.upper() + b'!'\n")
    file = tmp_path / "shout.py"
    file.write_text(
        f"from words_{name[-12:]} import loud\n"
        "from pyspark.sql import functions as F\n"
        f"settings = {{'name': {name!r}, 'spark': {{'master': 'local[2]'}}}}\n"
        "MARK = b'?'\n"
        "def twice(value):\n    return loud(bytes(value)) + MARK\n"
        "def pipeline(df):\n"
        "    return df.select(F.udf(twice, 'binary', useArrow=False)('value').alias('value'))\n"
    )
    send(address, source, b"hello")
    done = call("run", str(file), "--address", address, "--from", source, "--to", sink, "--available-now")

    assert done.returncode == 0, done.stderr
    assert read(address, sink, 1) == [b"HELLO!?"]

"""`semel pipeline status` and `adopt`: what they say of checkpoints that fit their marker, and of those that do not."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel.cli.main import main
from semel.spark.adoption import adopt_checkpoint, marker_of
from semel.spark.jdbc import table_writer
from semel.spark.pipeline.notes import NAME, Notes, remember
from semel.sync import Admin, Producer


class MadeCheckpoint:
    """A checkpoint as Spark leaves it, made by hand."""

    def __init__(self, root: Path, address: str, topic: str) -> None:
        self.root = root
        self.options = {"kafka.bootstrap.servers": address, "checkpointLocation": str(root)}
        self._topic = topic
        for folder in ("offsets", "commits"):
            (root / folder).mkdir(parents=True)
        (root / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))

    def plan(self, batch_id: int, offset: int) -> None:
        lines = ["v1", '{"batchWatermarkMs":0}', json.dumps({self._topic: {"0": offset}})]
        (self.root / "offsets" / str(batch_id)).write_text("\n".join(lines))

    def complete(self, batch_id: int) -> None:
        (self.root / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def run(self, first: int, last: int, *, offset_step: int = 1) -> None:
        for batch_id in range(first, last + 1):
            self.plan(batch_id, (batch_id + 1) * offset_step)
            self.complete(batch_id)

    def mark(self, batch_id: int) -> None:
        adopt_checkpoint(self.options, batch_id)

    def marked(self) -> int | None:
        marker = marker_of(self.options)[1]
        return None if marker is None else marker.number


@pytest.fixture
def topic(new_topic: Callable[..., str], producer: Producer) -> str:
    name = new_topic("orders", partitions=1)
    for _ in range(10):
        producer.send(name, b"x")
    producer.flush()
    return name


@pytest.fixture
def checkpoint(tmp_path: Path, address: str, topic: str) -> MadeCheckpoint:
    made = MadeCheckpoint(tmp_path / "checkpoint", address, topic)
    remember(str(made.root), Notes(address, None, "__semel_pipelines"))
    return made


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def call(*arguments: object) -> tuple[int, str]:
        code = main(["pipeline", *map(str, arguments)])
        told = capsys.readouterr()
        return code, told.out + told.err

    return call


def status_of(said: Callable[..., tuple[int, str]], *arguments: object) -> dict[str, Any]:
    code, text = said("status", *arguments, "--json")
    assert code == 0, text
    told: dict[str, Any] = json.loads(text)
    return told


def test_a_checkpoint_that_fits_its_marker_is_told_with_offsets_and_lag(
    checkpoint: MadeCheckpoint, topic: str, said: Callable[..., tuple[int, str]]
) -> None:
    checkpoint.run(0, 6)
    checkpoint.mark(6)

    told = status_of(said, checkpoint.root)
    assert (told["completed"], told["planned"], told["marker"]["number"]) == (6, 6, 6)
    assert (told["fits"], told["next"], told["lag"]) == (True, "batch 7", 3)
    assert told["partitions"] == [{"topic": topic, "partition": 0, "offset": 7, "end": 10, "lag": 3}]

    code, text = said("status", checkpoint.root)
    assert code == 0
    assert "batches     done up to 6\n" in text
    assert "next        batch 7\n" in text
    assert text.splitlines()[-1].split() == [topic, "0", "7", "10", "3"]


def test_a_status_that_is_watched_is_told_again_and_again(
    checkpoint: MadeCheckpoint, said: Callable[..., tuple[int, str]]
) -> None:
    checkpoint.run(0, 6)
    checkpoint.mark(6)

    code, text = said("status", checkpoint.root, "--watch", "--every", "0.1", "--count", "2", "--json")
    assert code == 0
    assert [json.loads(line)["lag"] for line in text.splitlines()] == [3, 3]
    code, text = said("status", checkpoint.root, "--watch", "--count", "1")
    assert code == 0
    assert text.startswith("pipeline  ")
    assert "next        batch 7\n" in text


def test_a_batch_that_is_published_and_not_completed_is_told(
    checkpoint: MadeCheckpoint, said: Callable[..., tuple[int, str]]
) -> None:
    checkpoint.run(0, 2)
    checkpoint.plan(3, 9)
    checkpoint.mark(3)

    told = status_of(said, checkpoint.root)
    assert told["fits"]
    assert told["next"] == "batch 3 is published, and Spark will be told at the next start"
    code, text = said("adopt", checkpoint.root)
    assert (code, checkpoint.marked()) == (0, 3)
    assert "there is nothing to adopt" in text
    code, text = said("adopt", checkpoint.root, "--json")
    assert (code, json.loads(text)["adopted"], json.loads(text)["effects"]) == (0, False, [])
    code, text = said("adopt", checkpoint.root, "--batch", "2", "--yes", "--json")
    assert (code, checkpoint.marked()) == (0, 2)
    assert (json.loads(text)["adopted"], json.loads(text)["next_batch"]) == (True, 3)


def test_a_query_that_has_not_begun_has_nothing_to_show(
    checkpoint: MadeCheckpoint, said: Callable[..., tuple[int, str]]
) -> None:
    told = status_of(said, checkpoint.root)

    assert (told["completed"], told["marker"], told["fits"], told["partitions"]) == (-1, None, True, [])


def test_a_restored_checkpoint_is_refused_and_adopted_only_by_who_means_it(
    checkpoint: MadeCheckpoint, said: Callable[..., tuple[int, str]]
) -> None:
    checkpoint.run(0, 4)
    backup = checkpoint.root.with_name("backup")
    shutil.copytree(checkpoint.root, backup)
    checkpoint.run(5, 8)
    checkpoint.mark(8)
    shutil.rmtree(checkpoint.root)
    backup.rename(checkpoint.root)

    told = status_of(said, checkpoint.root)
    assert not told["fits"]
    assert told["next"].startswith("refused: batch 5 of query")
    assert told["next"].endswith("semel pipeline adopt")

    code, text = said("adopt", checkpoint.root)
    assert (code, checkpoint.marked()) == (1, 8), "nobody could be asked, so nothing was changed"
    assert "The marker will be set to batch 4, so that batch 5 is the next one that is published." in text
    assert "Batches 5 to 8 were published before: what they have written will be written again." in text
    assert "say --yes if it is meant" in text

    code, text = said("adopt", checkpoint.root, "--json")
    told = json.loads(text)
    assert (code, checkpoint.marked(), told["adopted"], told["next_batch"]) == (1, 8, False, None)
    assert "Batches 5 to 8 were published before: what they have written will be written again." in told["effects"]

    code, text = said("adopt", checkpoint.root, "--yes")
    assert (code, checkpoint.marked()) == (0, 4)
    assert text.endswith("adopted: batch 5 comes next\n")
    assert status_of(said, checkpoint.root)["fits"]


def test_a_checkpoint_with_other_offsets_than_were_published_is_refused(
    checkpoint: MadeCheckpoint, said: Callable[..., tuple[int, str]]
) -> None:
    checkpoint.run(0, 2)
    checkpoint.mark(2)
    checkpoint.plan(2, 9)

    told = status_of(said, checkpoint.root)
    assert not told["fits"]
    assert "batch 2 was committed with other offsets of its sources" in told["next"]


def test_what_is_not_committed_yet_is_not_behind(
    checkpoint: MadeCheckpoint, topic: str, address: str, said: Callable[..., tuple[int, str]]
) -> None:
    checkpoint.run(0, 6)
    checkpoint.mark(6)
    with Producer(bootstrap_servers=address, transactional_id=topic) as producer, producer.transaction():
        producer.send_and_wait(topic, b"not committed")
        told = status_of(said, checkpoint.root)

    assert (told["partitions"][0]["end"], told["lag"]) == (10, 3)


def test_a_person_is_asked_and_must_say_yes(
    checkpoint: MadeCheckpoint, said: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.run(0, 1)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, code, marked in (("y", 1, None), ("yes", 0, 1)):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert said("adopt", checkpoint.root)[0] == code
        assert checkpoint.marked() == marked


def test_batches_of_another_sink_can_be_adopted(
    checkpoint: MadeCheckpoint, said: Callable[..., tuple[int, str]]
) -> None:
    checkpoint.run(0, 3)

    assert "the cluster has no marker of it" in status_of(said, checkpoint.root)["next"]
    code, text = said("adopt", checkpoint.root, "--yes")
    assert (code, checkpoint.marked()) == (0, 3)
    assert "Batches up to 3 count as published: by another sink, or another cluster." in text


def test_a_batch_can_be_chosen_and_one_that_is_not_there_is_refused(
    checkpoint: MadeCheckpoint, said: Callable[..., tuple[int, str]]
) -> None:
    checkpoint.run(0, 3)
    checkpoint.mark(3)

    code, text = said("adopt", checkpoint.root, "--yes", "--batch", 9)
    assert (code, checkpoint.marked()) == (2, 3)
    assert "has batches up to 3" in text
    code, text = said("adopt", checkpoint.root, "--yes", "--batch", -1)
    assert (code, checkpoint.marked()) == (0, None)
    assert "The marker will be removed, so that batch 0 is the next one that is published." in text


def test_a_topic_that_is_gone_is_told_as_such(
    checkpoint: MadeCheckpoint, topic: str, address: str, said: Callable[..., tuple[int, str]]
) -> None:
    checkpoint.run(0, 0)
    checkpoint.mark(0)
    with Admin(bootstrap_servers=address) as admin:
        admin.delete_topics(topic)

    told = status_of(said, checkpoint.root)
    assert (told["lag"], told["partitions"][0]["end"]) == (None, None)
    assert said("status", checkpoint.root)[1].splitlines()[-1].split() == [topic, "0", "1", "gone", "gone"]


def test_a_checkpoint_of_another_program_needs_an_address(
    checkpoint: MadeCheckpoint, address: str, said: Callable[..., tuple[int, str]]
) -> None:
    (checkpoint.root / NAME).unlink()
    checkpoint.run(0, 1)
    checkpoint.mark(1)

    assert said("status", checkpoint.root)[0] == 2
    assert status_of(said, checkpoint.root, "--address", address)["fits"]
    other = status_of(said, checkpoint.root, "--address", address, "--option", "markerTopic=other-markers")
    assert other["marker"] is None


def test_a_directory_without_a_checkpoint_is_refused(
    tmp_path: Path, address: str, said: Callable[..., tuple[int, str]]
) -> None:
    code, text = said("status", tmp_path, "--address", address)

    assert code == 2
    assert "holds no checkpoint of a query" in text


def test_of_a_table_the_database_is_asked(
    tmp_path: Path, checkpoint: MadeCheckpoint, address: str, topic: str, said: Callable[..., tuple[int, str]]
) -> None:
    file = tmp_path / "totals.toml"
    file.write_text(
        f'name = "totals"\naddress = "{address}"\ncheckpoint = "checkpoint"\n[source]\ntopics = "{topic}"\n'
        '[sink]\ntable = "totals"\nurl = "sqlite:///shop.db"\n'
    )
    checkpoint.run(0, 2)
    writer = table_writer(
        f"sqlite:///{tmp_path / 'shop.db'}", "totals", query="totals", checkpoint=str(checkpoint.root)
    )
    writer.adopt(1)

    told = status_of(said, file)
    assert (told["marker"]["number"], told["fits"]) == (1, False)
    assert said("adopt", file, "--yes")[0] == 0
    told = status_of(said, file)
    assert (told["marker"]["number"], told["fits"], told["lag"]) == (2, True, 7)

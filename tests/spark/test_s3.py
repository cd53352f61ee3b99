"""Checkpoint and staged batches on a real S3 server, reached by the session's settings alone; killed at every step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from s3_program import ROWS, TASKS, rows_of
from sink_world import FakeCheckpoint, committed_rows

from real_broker import clean_environment
from s3_server import BUCKET, S3Server, program
from semel.spark.steps import VARIABLE, Step

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if program() is None:
        pytest.skip("no versitygw on the PATH; `make stores` builds it, with Go")
    made = S3Server(tmp_path_factory.mktemp("s3"))
    yield made
    made.stop()


class Query:
    def __init__(self, server: S3Server, address: str, topic: str) -> None:
        self.server, self.address, self.topic = server, address, topic
        self.checkpoint = FakeCheckpoint(server.folder / "data" / BUCKET / topic)
        self.checkpoint.plan(0)

    def run(self, conf: dict[str, str] | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """The first batch; without anything of S3 in the environment."""
        session = self.server.conf if conf is None else conf
        arguments = [self.address, f"s3a://{BUCKET}/{self.topic}", self.checkpoint.query_id, self.topic, "0"]
        command = [sys.executable, str(HERE / "s3_program.py"), *arguments, json.dumps(session)]
        path = os.pathsep.join([str(HERE), str(HERE.parent)])
        environment = clean_environment(PYTHONPATH=path, AWS_EC2_METADATA_DISABLED="true", **variables)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)

    def staged(self) -> list[str]:
        return [name for name in self.server.files(self.topic) if "sink-staging" in name]


@pytest.fixture
def query(server: S3Server, address: str, new_topic: Callable[..., str]) -> Query:
    return Query(server, address, new_topic("out", partitions=2))


@pytest.mark.parametrize("step", list(Step))
def test_a_driver_that_is_killed_at_any_step_has_its_batch_written_once(query: Query, step: Step) -> None:
    killed = query.run(**{VARIABLE: f"{step}@0:kill"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert query.staged() or step is Step.CLEANED, "it was staged in the bucket"
    second = query.run()
    assert second.stdout.strip() == "committed", second.stderr

    found = committed_rows(query.address, query.topic)
    expected = [(key.encode(), value.encode()) for task in range(TASKS) for key, value in rows_of(0, task)]
    assert len(found) == TASKS * ROWS
    assert sorted(found) == sorted(expected)
    assert query.staged() == []


def test_credentials_that_are_refused_are_told_with_the_place_and_what_counts(query: Query) -> None:
    failed = query.run({**query.server.conf, "spark.hadoop.fs.s3a.secret.key": "another"})

    assert failed.returncode == 1
    last = failed.stderr.strip().splitlines()[-1]
    assert f"PlaceUnreachable: s3://{BUCKET}/{query.topic}" in last
    assert "spark.hadoop.fs.s3a.access.key" in last


def test_what_cannot_be_done_is_refused_before_the_store_is_asked(query: Query) -> None:
    failed = query.run({**query.server.conf, "spark.hadoop.fs.s3a.encryption.algorithm": "SSE-KMS"})

    assert "spark.hadoop.fs.s3a.encryption.algorithm: pyarrow.fs cannot ask for SSE-KMS" in failed.stderr
    assert query.staged() == []

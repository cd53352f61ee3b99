"""Progress for the group: told in the background if it must be, never twice, and never at the query's expense."""

from __future__ import annotations

import logging
import threading

import pytest

from semel.client.errors import NotAuthorised
from semel.client.metadata import TopicPartition
from semel.spark.group_progress import GroupProgress
from semel.spark.offsets import Offsets

HERE = TopicPartition("t", 0)


class Commits:
    """Takes commits; while it is closed, they wait."""

    def __init__(self) -> None:
        self.made: list[Offsets] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)
        self.error: Exception | None = None

    def __call__(self, offsets: Offsets) -> None:
        self.begun.release()
        self.gate.wait(10)
        if self.error is not None:
            raise self.error
        self.made.append(offsets)


def test_a_commit_is_made_before_the_query_goes_on() -> None:
    commits = Commits()
    progress = GroupProgress("g", commits)

    progress.reached({HERE: 1})
    progress.reached({HERE: 1})
    progress.reached({})
    progress.reached({HERE: 2})

    assert commits.made == [{HERE: 1}, {HERE: 2}]


def test_one_that_takes_its_time_holds_nobody_up_and_only_the_newest_follows() -> None:
    commits = Commits()
    commits.gate.clear()
    progress = GroupProgress("g", commits)

    for offset in (1, 2, 3):
        progress.reached({HERE: offset})
    assert commits.made == []
    commits.gate.set()
    assert commits.begun.acquire(timeout=10)
    assert commits.begun.acquire(timeout=10)
    progress.close()

    assert commits.made == [{HERE: 1}, {HERE: 3}]


def test_a_refusal_is_told_once_and_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    commits = Commits()
    commits.error = NotAuthorised("group g is not for you")
    progress = GroupProgress("g", commits)

    with caplog.at_level(logging.WARNING, "semel.spark"):
        progress.reached({HERE: 1})
        progress.reached({HERE: 2})
    assert caplog.text.count("group g is not for you") == 1

    commits.error = None
    progress.reached({HERE: 3})
    assert commits.made == [{HERE: 3}]

"""Which Python runs data sources on a cluster: Spark knows one name for the driver and for tasks."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from semel.spark import spark_session

IN_THE_ARCHIVE = "./environment/bin/python"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a driver whose directory has the environment that tasks have from an archive."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "environment").symlink_to(sys.prefix)
    # As under spark-submit, which has chosen a Java already.
    return {"PATH": "", "PYSPARK_GATEWAY_PORT": "1"}


def prepare(environ: dict[str, str]) -> None:
    spark_session.prepare("a", "spark://host:7077", {}, environ)


def test_the_name_that_was_given_for_tasks_is_the_drivers_too(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    environ["PYSPARK_PYTHON"] = IN_THE_ARCHIVE
    prepare(environ)

    assert environ["PYSPARK_DRIVER_PYTHON"] == IN_THE_ARCHIVE
    assert caplog.records == []


def test_without_a_name_it_is_this_python(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    prepare(environ)

    assert environ["PYSPARK_PYTHON"] == environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert caplog.records == []


def test_a_name_of_the_drivers_own_is_kept_with_a_warning(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    environ |= {"PYSPARK_PYTHON": IN_THE_ARCHIVE, "PYSPARK_DRIVER_PYTHON": sys.executable}
    with caplog.at_level(logging.WARNING, "semel.spark"):
        prepare(environ)

    assert environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert [record.getMessage() for record in caplog.records] == [
        f"PYSPARK_PYTHON is {IN_THE_ARCHIVE}, but tasks of format('semel') run PYSPARK_DRIVER_PYTHON, "
        f"which is {sys.executable}"
    ]


def test_a_name_that_leads_nowhere_here_is_warned_of(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    environ["PYSPARK_PYTHON"] = "./elsewhere/bin/python"
    with caplog.at_level(logging.WARNING, "semel.spark"):
        prepare(environ)

    assert [record.getMessage() for record in caplog.records] == [
        "there is no ./elsewhere/bin/python here: the driver needs it as the tasks do, under the same name"
    ]

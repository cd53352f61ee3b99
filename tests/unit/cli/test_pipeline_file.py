"""Pipeline files: what they mean, and that every slip in one is told with its place and what is allowed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from semel.cli.main import main
from semel.spark import sink_options, source_options
from semel.spark.pipeline.definition import Pipeline, TableSink, TopicSink
from semel.spark.pipeline.errors import PipelineRefused
from semel.spark.pipeline.file import Overrides, load_pipeline
from semel.spark.pipeline.keys import BROKER, ROOT, SINK, SOURCE, Kind

ORDERS = """
name = "orders"
address = "localhost:9092"
trigger = "10 seconds"
sql = "SELECT id FROM input"

[source]
topics = ["orders"]
format = "json"
schema = "id BIGINT NOT NULL, at TIMESTAMP"
watermark = {column = "at", delay = "10 minutes"}
options = {maxOffsetsPerTrigger = 1000}

[sink]
topic = "ids"
key = "id"

[kafka]
security.protocol = "SASL_SSL"
"sasl.jaas.config" = "password=${ORDERS_PASSWORD}"

[spark]
master = "local[2]"
spark.executor.memory = "4g"
"""
SQL = 'sql = "SELECT id FROM input"'
LIMIT = "maxOffsetsPerTrigger = 1000"
ENVIRON = {"ORDERS_PASSWORD": "secret"}
LEAST = '[source]\ntopics = "in"\n[sink]\ntopic = "out"\n'


def load(tmp_path: Path, text: str, overrides: Overrides | None = None, name: str = "some.toml") -> Pipeline:
    path = tmp_path / name
    path.write_text(text)
    return load_pipeline(path, overrides, ENVIRON)


def refused(tmp_path: Path, text: str, name: str = "some.toml") -> list[str]:
    with pytest.raises(PipelineRefused) as caught:
        load(tmp_path, text, name=name)
    assert all(problem.startswith(str(tmp_path / name)) for problem in caught.value.problems)
    return [problem.removeprefix(f"{tmp_path / name}: ") for problem in caught.value.problems]


# -- what a file means


def test_a_file_becomes_the_options_of_source_and_sink(tmp_path: Path) -> None:
    pipeline = load(tmp_path, ORDERS)

    kafka = {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": "password=secret",
    }
    assert pipeline.sources[0].read_options(pipeline, "localhost:9092") == {
        **kafka,
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "queryName": "orders",
        "maxOffsetsPerTrigger": "1000",
    }
    assert isinstance(pipeline.sink, TopicSink)
    assert pipeline.sink.write_options(pipeline, "localhost:9092") == {
        **kafka,
        "topic": "ids",
        "checkpointLocation": str(tmp_path / "orders.checkpoint"),
    }
    assert (pipeline.master, pipeline.spark) == ("local[2]", {"spark.executor.memory": "4g"})
    assert pipeline.sources[0].view == "orders"
    assert pipeline.log == tmp_path / "orders.checkpoint.log"


def test_defaults_are_an_embedded_broker_beside_the_checkpoint_and_raw_values(tmp_path: Path) -> None:
    pipeline = load(tmp_path, LEAST)

    assert pipeline.address is None
    assert pipeline.create_topics
    assert pipeline.broker.data == tmp_path / "some.checkpoint.broker"
    assert (pipeline.name, pipeline.trigger, pipeline.sources[0].format) == ("some", "0 seconds", "raw")
    assert isinstance(pipeline.sink, TopicSink)
    assert pipeline.sink.format == "raw"


def test_with_an_address_topics_are_not_made_unless_asked_for(tmp_path: Path) -> None:
    assert not load(tmp_path, ORDERS).create_topics
    assert load(tmp_path, "create_topics = true\n" + ORDERS).create_topics


def test_a_dead_letter_topic_leaves_the_topic_of_a_record_to_its_row(tmp_path: Path) -> None:
    pipeline = load(tmp_path, 'dead_letter_topic = "bad"\n' + ORDERS)

    assert isinstance(pipeline.sink, TopicSink)
    written = pipeline.sink.write_options(pipeline, "a:1")
    assert "topic" not in written
    assert written["deadLetterTopic"] == "bad"
    assert pipeline.sources[0].read_options(pipeline, "a:1")["includeHeaders"] == "true"


def test_offsets_to_start_with_are_written_as_spark_writes_them(tmp_path: Path) -> None:
    pipeline = load(tmp_path, LEAST.replace('topics = "in"', 'topics = "in"\nstarting = {in = {"0" = 23}}'))

    assert json.loads(pipeline.sources[0].read_options(pipeline, "a:1")["startingOffsets"]) == {"in": {"0": 23}}


def test_another_start_among_the_options_takes_the_place_of_the_default(tmp_path: Path) -> None:
    given = LEAST.replace('topics = "in"', 'topics = "in"\noptions = {startingTimestamp = 1700000000000}')
    pipeline = load(tmp_path, given)

    assert "startingOffsets" not in pipeline.sources[0].read_options(pipeline, "a:1")


def test_a_table_of_sqlite_is_beside_the_file(tmp_path: Path) -> None:
    sink = '[sink]\ntable = "totals"\nurl = "sqlite:///shop.db"\nkeys = ["id"]\ncreate = true\n'
    pipeline = load(tmp_path, LEAST.partition("[sink]")[0] + sink)

    assert pipeline.sink == TableSink("totals", f"sqlite:///{tmp_path / 'shop.db'}", ("id",), True)


def test_several_sources_are_called_by_their_topics(tmp_path: Path) -> None:
    given = '[[source]]\ntopics = "orders-eu"\n[[source]]\ntopics = "2024"\n[sink]\ntopic = "out"\n'

    assert [source.view for source in load(tmp_path, given).sources] == ["orders_eu", "_2024"]


def test_sql_and_schemas_can_be_in_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text("SELECT 1 FROM input")
    given = 'sql_file = "query.sql"\n' + LEAST

    assert load(tmp_path, given).sql == "SELECT 1 FROM input"
    assert refused(tmp_path, given.replace("query.sql", "other.sql")) == [
        f"sql_file: {tmp_path / 'other.sql'} cannot be read: No such file or directory"
    ]


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    flags = Overrides("other:1", str(tmp_path / "there"), "available-now", ("a", "b"), "c")
    pipeline = load(tmp_path, ORDERS, flags)

    assert (pipeline.address, pipeline.trigger) == ("other:1", "available-now")
    assert pipeline.checkpoint == str(tmp_path / "there")
    assert pipeline.sources[0].topics == ("a", "b")
    assert isinstance(pipeline.sink, TopicSink)
    assert pipeline.sink.topic == "c"


def test_spark_of_the_command_line_wins_over_that_of_the_file(tmp_path: Path) -> None:
    spark = '[spark]\nmaster = "local[2]"\n"spark.x" = "1"\n"spark.y" = "1"\n'
    text = '[source]\ntopics = ["a"]\n[sink]\ntopic = "b"\n' + spark
    flags = Overrides(spark={"master": "spark://one:7077", "spark.y": "2"})
    pipeline = load(tmp_path, text, flags)

    assert pipeline.master == "spark://one:7077"
    assert pipeline.spark == {"spark.x": "1", "spark.y": "2"}


def test_a_setting_that_is_not_sparks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", str(tmp_path / "x.toml"), "--conf", "driver.memory=1g"]) == 2
    assert "--conf 'driver.memory=1g' is not allowed; allowed: spark.NAME=VALUE" in capsys.readouterr().err


def test_a_checkpoint_elsewhere_is_taken_as_it_is(tmp_path: Path) -> None:
    pipeline = load(tmp_path, 'checkpoint = "s3://bucket/orders"\n' + ORDERS)

    assert pipeline.checkpoint == "s3://bucket/orders"
    assert pipeline.log == tmp_path / "some.log"


# -- what is wrong with one


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("topics", "topcs"), "source.topcs: unknown key; the nearest known key is source.topics"),
        (("[sink]", "[skin]"), "skin: unknown key; the nearest known key is sink"),
        (
            ("10 seconds", "hourly"),
            "trigger: 'hourly' is not allowed; allowed: available-now, or",
        ),
        (('"json"', '"xml"'), "source.format: 'xml' is not allowed; allowed: json, avro, raw"),
        (('topics = ["orders"]', "topics = 7"), "source.topics: 7 is not allowed; allowed: a text or a list of texts"),
        (('key = "id"', "key = true"), "sink.key: True is not allowed; allowed: a text"),
        (
            ('"10 minutes"', '"a while"'),
            "source.watermark.delay: 'a while' is not allowed; allowed: a number",
        ),
        (('column = "at", ', ""), "source.watermark.column: is missing"),
        (("schema =", "view = 'v'\n#"), 'source.schema: is missing: json needs it, "id BIGINT NOT NULL, name STRING"'),
        (('topic = "ids"', ""), "sink: either topic or table says where rows go, and one is needed"),
        (('topic = "ids"', 'table = "t"'), "sink.key: is for a topic: leave it out"),
        (('topics = ["orders"]', ""), "source.topics: either topics or pattern says what is read, and one is needed"),
        (('topics = ["orders"]', 'pattern = "["'), "source.options: subscribePattern: '[' is no regular expression"),
        (('name = "orders"', 'name = "a b"'), "name: 'a b' is not allowed; allowed: letters, digits, '.', '_' and '-'"),
        (
            ('topic = "ids"', 'topic = "orders"'),
            "sink.topic: 'orders' is also read",
        ),
        (
            (LIMIT, "maxOffsetsPerTrigger = -1"),
            "source.options: maxOffsetsPerTrigger: '-1' is not allowed",
        ),
        (
            (LIMIT, "maxOfsetsPerTrigger = 1"),
            "source.options: maxOfsetsPerTrigger: unknown option",
        ),
        (
            (LIMIT, "subscribe = 'x'"),
            "source.options.subscribe: is what source.topics says",
        ),
        (('"local[2]"', '"local[2]"\nexecutors = 2'), "spark.executors: is no setting of Spark"),
        (("[spark]", "[broker]\nport = 1\n[spark]"), "broker: is for the embedded one, and address names another"),
        (("${ORDERS_PASSWORD}", "${OTHER}"), "kafka.sasl.jaas.config: the environment has no variable OTHER"),
        (("security.protocol", "security.protocl"), "source.options: kafka.security.protocl: unknown option"),
        (
            (SQL, 'sql = "x"\nsql_file = "y"'),
            "sql_file: contradicts sql",
        ),
        (
            (SQL, 'dead_letter_topic = "ids"'),
            "dead_letter_topic: is the topic",
        ),
        (
            ('topic = "ids"', 'topic = "ids"\nformat = "avro"\nschema = "{}"'),
            "sink.schema: schema: 'None' is no type",
        ),
    ],
)
def test_a_slip_is_told_with_its_place(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    text = ORDERS.replace(*change, 1)
    assert text != ORDERS

    assert any(told.startswith(problem) for told in refused(tmp_path, text)), refused(tmp_path, text)


def test_all_slips_are_told_at_once(tmp_path: Path) -> None:
    text = ORDERS.replace('trigger = "10 seconds"', 'trigger = "soon"').replace('"10 minutes"', '"later"')

    places = {told.partition(":")[0] for told in refused(tmp_path, text)}
    assert places == {"trigger", "source.watermark.delay"}


def test_two_sources_of_one_name_are_refused(tmp_path: Path) -> None:
    given = '[[source]]\ntopics = "a-b"\n[[source]]\ntopics = "a.b"\n[sink]\ntopic = "out"\n'

    assert refused(tmp_path, given) == ["source: several sources are called 'a_b': give each a view of its own"]


def test_a_place_within_several_sources_is_numbered(tmp_path: Path) -> None:
    given = '[[source]]\ntopics = "a"\n[[source]]\ntopics = "b"\nformat = "jsn"\n[sink]\ntopic = "out"\n'

    assert refused(tmp_path, given) == ["source[2].format: 'jsn' is not allowed; allowed: json, avro, raw"]


def test_a_table_takes_no_dead_letter_topic(tmp_path: Path) -> None:
    sink = '[sink]\ntable = "t"\nurl = "sqlite:///x.db"\n'
    text = 'dead_letter_topic = "bad"\n' + LEAST.partition("[sink]")[0] + sink

    assert refused(tmp_path, text)[0].startswith("dead_letter_topic: is not for a table: no transaction spans")


def test_what_is_not_toml_is_told_with_the_line(tmp_path: Path) -> None:
    assert "is not TOML" in refused(tmp_path, "name = \n")[0]
    assert "line 1" in refused(tmp_path, "name = \n")[0]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineRefused, match="cannot be read: No such file"):
        load_pipeline(tmp_path / "none.toml")
    with pytest.raises(PipelineRefused, match="there is no such file"):
        load_pipeline(tmp_path / "none.py")


# -- Python files

PARAMETERS = "pipeline: takes other parameters than the sources give"
FUNCTION_SAYS = "the function pipeline says what is done: leave it out"
SHOUT = """
settings = {"source": {"topics": ["in"]}, "sink": {"topic": "out"}}
def pipeline(df):
    return df
"""


def test_a_python_file_gives_a_function_and_the_same_settings(tmp_path: Path) -> None:
    pipeline = load(tmp_path, SHOUT, name="shout.py")

    assert pipeline.function is not None
    assert pipeline.function(7) == 7
    assert pipeline.sources[0].topics == ("in",)
    assert pipeline.name == "shout"


def test_a_python_file_without_settings_takes_its_topics_from_flags(tmp_path: Path) -> None:
    text = "def pipeline(df):\n    return df\n"

    assert load(tmp_path, text, Overrides(topics=("a",), sink_topic="b"), "shout.py").sources[0].topics == ("a",)
    assert any("source: is missing" in problem for problem in refused(tmp_path, text, "shout.py"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1", "has no function pipeline; expected is def pipeline(df): return df..."),
        (
            SHOUT.replace("(df)", "()"),
            f"{PARAMETERS}; expected is pipeline(df)",
        ),
        (
            SHOUT.replace('"topics": ["in"]', '"topics": 3'),
            f"source.topics: 3 is not allowed; allowed: {Kind.TEXTS}",
        ),
        ("settings = 3\ndef pipeline(df):\n    return df\n", "settings is int; expected is a dict"),
        (
            SHOUT.replace('"sink"', '"sql": "SELECT 1", "sink"'),
            f"sql: {FUNCTION_SAYS}",
        ),
    ],
)
def test_a_slip_in_a_python_file_is_told(tmp_path: Path, text: str, problem: str) -> None:
    assert refused(tmp_path, text, "shout.py") == [problem]


def test_an_error_in_a_python_file_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineRefused, match=r"shout.py, line 2: ZeroDivisionError: division by zero"):
        load(tmp_path, "x = 1\ny = x / 0\n", name="shout.py")
    with pytest.raises(PipelineRefused, match=r"shout.py, line 1: SyntaxError"):
        load(tmp_path, "def pipeline(df) return\n", name="shout.py")


def test_a_function_of_several_sources_is_called_by_their_names(tmp_path: Path) -> None:
    settings = 'settings = {"source": [{"topics": "a"}, {"topics": "b"}], "sink": {"topic": "out"}}\n'

    assert load(tmp_path, settings + "def pipeline(a, b):\n    return a\n", name="two.py").function is not None
    told = refused(tmp_path, settings + "def pipeline(df):\n    return df\n", "two.py")
    assert told == [f"{PARAMETERS}; expected is pipeline(a, b)"]


# -- the keys, and the command


def test_every_key_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    for prefix, keys in (("", ROOT), ("source.", SOURCE), ("sink.", SINK), ("broker.", BROKER)):
        for key in keys:
            if key.kind not in (Kind.TABLE, Kind.TABLES):
                assert f"`{prefix}{key.name}`" in page, f"{prefix}{key.name} is not described"


def test_every_example_can_be_read() -> None:
    examples = Path(__file__).parents[3] / "examples" / "pipelines"
    files = [path for path in examples.iterdir() if path.suffix in (".toml", ".py")]
    assert len(files) >= 4
    for path in files:
        load_pipeline(path, environ={})


def test_a_wrong_file_ends_the_command_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.toml").write_text("nam = 1")

    assert main(["pipeline", "run", str(tmp_path / "some.toml")]) == 2
    told = capsys.readouterr().err
    assert told == f"semel pipeline: {tmp_path / 'some.toml'}: nam: unknown key; the nearest known key is name\n"


def test_help_shows_examples_and_imports_no_spark() -> None:
    program = (
        "import sys\n"
        "from semel.cli.main import main\n"
        "try:\n    main(['pipeline', 'run', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(name for name in sys.modules if name in ('pyspark', 'pyarrow', 'asyncio', 'semel.client')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "examples:" in done.stdout
    assert "semel pipeline run orders.toml" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_option_that_is_no_pair_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments: list[Any] = ["pipeline", "status", str(tmp_path), "--option", "markerTopic"]

    assert main(arguments) == 2
    assert "--option 'markerTopic' is not allowed; allowed: NAME=VALUE" in capsys.readouterr().err


def test_a_directory_that_is_no_checkpoint_of_ours_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", str(tmp_path)]) == 2
    assert "give the cluster by --address" in capsys.readouterr().err


def test_every_option_of_source_and_sink_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    of_sink = (*sink_options._BOTH, *sink_options._STREAM_ONLY, *sink_options._BATCH_ONLY)
    for name in (*source_options._KNOWN, *of_sink):
        assert f"`{name}`" in page, f"{name} is not described"


def test_the_stateful_examples_in_the_documentation_are_those_that_are_tested() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    for name in ("revenue.toml", "paid_orders.toml"):
        text = (Path(__file__).parents[3] / "examples" / "pipelines" / name).read_text()
        assert text.partition("\n\n")[2].strip() in page, f"{name} is another one in the documentation"

"""Named clusters: the file they are in, and what a command makes of them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from semel.cli.connection import client_settings, shown_options
from semel.cli.contexts import Contexts, contexts_path
from semel.cli.failures import Exit, WrongCall
from semel.cli.main import main, parser_for


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "contexts.toml"
    monkeypatch.setenv("SEMEL_CONFIG", str(path))
    return path


def settings(*arguments: str) -> dict[str, object]:
    return client_settings(parser_for("topic").parse_args(["topic", "list", *arguments]))


def test_the_file_is_where_the_environment_says() -> None:
    assert contexts_path({"SEMEL_CONFIG": "/x/y.toml"}) == Path("/x/y.toml")
    assert contexts_path({"XDG_CONFIG_HOME": "/home/a/.conf"}) == Path("/home/a/.conf/semel/contexts.toml")
    assert contexts_path({}) == Path.home() / ".config" / "semel" / "contexts.toml"


def test_without_anything_it_is_localhost() -> None:
    assert settings()["bootstrap_servers"] == "localhost:9092"


def test_the_first_context_is_used_until_another_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "add", "one", "--bootstrap", "one:1"]) == 0
    assert capsys.readouterr().out == "context one is one:1; commands speak to it from now on\n"
    assert main(["context", "add", "two", "--bootstrap", "two:2"]) == 0
    assert capsys.readouterr().out == "context two is two:2\n"
    assert settings()["bootstrap_servers"] == "one:1"
    assert main(["context", "use", "two"]) == 0
    assert settings()["bootstrap_servers"] == "two:2"
    assert settings("--context", "one")["bootstrap_servers"] == "one:1"
    assert settings("--bootstrap", "three:3")["bootstrap_servers"] == "three:3"
    assert main(["context", "remove", "two"]) == 0
    assert "no context is in use now" in capsys.readouterr().out
    assert settings()["bootstrap_servers"] == "localhost:9092"


def test_an_address_takes_nothing_from_the_context_in_use() -> None:
    main(["context", "add", "prod", "--bootstrap", "prod:1", "--set", "security.protocol=SSL"])

    assert settings()["security_protocol"] == "SSL"
    assert "security_protocol" not in settings("--bootstrap", "other:1")


def test_a_setting_given_wins_over_the_context_by_either_of_its_names() -> None:
    main(["context", "add", "prod", "--bootstrap", "prod:1", "--set", "client.id=theirs"])

    assert settings("--set", "client_id=mine")["client_id"] == "mine"
    assert settings("--set", "client.id=mine")["client_id"] == "mine"
    assert settings()["client_id"] == "theirs"


def test_passwords_come_from_the_environment_when_the_context_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    main(["context", "add", "prod", "--bootstrap", "p:1", "--set", "sasl.password=${THEIR_PASSWORD}"])
    with pytest.raises(WrongCall, match="sasl_password needs the variable THEIR_PASSWORD"):
        settings()
    monkeypatch.setenv("THEIR_PASSWORD", "x=${y}")

    assert settings()["sasl_password"] == "x=${y}"


def test_the_file_is_for_its_owner_alone(file: Path) -> None:
    main(["context", "add", "prod", "--bootstrap", "p:1"])

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["contexts.toml"]


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "\x7f", "grün", "\U0001f600", "${X}"])
def test_what_is_written_is_read_back(file: Path, value: str) -> None:
    Contexts(file, {}, {"a.b": {"sasl_password": value}}, "a.b").write()
    read = Contexts.read({"SEMEL_CONFIG": str(file)})

    assert (read.named, read.current) == ({"a.b": {"sasl_password": value}}, "a.b")


def test_a_file_written_by_hand_may_spell_names_as_kafka_does(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('[contexts.prod]\nbootstrap.servers = "p:1"\n"client.id" = "x"\nrequest.timeout.ms = 5\n')

    assert Contexts.read().get("prod") == {"bootstrap_servers": "p:1", "client_id": "x", "request_timeout_ms": "5"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("curent = 'x'", "curent: unknown key"),
        ("current = 'x'", r"current: there is no \[contexts.x\]"),
        ("contexts = 3", "contexts: allowed are tables"),
        ("[contexts.a]\nx = []", "x: allowed are texts, numbers and booleans"),
        ("[contexts", "is not a file of contexts"),
    ],
)
def test_a_slip_in_the_file_is_told(file: Path, text: str, problem: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(WrongCall, match=problem):
        Contexts.read()


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["use", "none"], Exit.NOT_FOUND, "there is no context 'none'"),
        (["remove", "none"], Exit.NOT_FOUND, "there is no context 'none'"),
        (["add", "a b", "--bootstrap", "x:1"], Exit.WRONG_CALL, "a context cannot be called 'a b'"),
        (["add", "a", "--bootstrap", "x:1", "--set", "sasl.pasword=${X}"], Exit.WRONG_CALL, "unknown setting"),
        (["add", "a", "--bootstrap", "x:1", "--set", "security.protocol=TLS"], Exit.WRONG_CALL, "not allowed"),
        (["add", "a", "--bootstrap", "x:1", "--set", "client.id"], Exit.WRONG_CALL, "allowed: NAME=VALUE"),
    ],
)
def test_a_wrong_call_changes_nothing(
    arguments: list[str], code: int, problem: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["context", *arguments]) == code
    assert problem in capsys.readouterr().err
    assert not file.exists()


def test_a_name_that_is_taken_is_kept_unless_it_is_to_be_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    main(["context", "add", "a", "--bootstrap", "x:1"])
    assert main(["context", "add", "a", "--bootstrap", "y:1"]) == Exit.FAILED
    assert "--replace takes its place" in capsys.readouterr().err
    assert settings()["bootstrap_servers"] == "x:1"
    assert main(["context", "add", "a", "--bootstrap", "y:1", "--replace"]) == Exit.OK
    assert settings()["bootstrap_servers"] == "y:1"


def test_a_list_shows_no_passwords(capsys: pytest.CaptureFixture[str]) -> None:
    main(["context", "add", "a", "--bootstrap", "x:1", "--set", "sasl.password=secret", "--set", "client.id=me"])
    main(["context", "add", "b", "--bootstrap", "y:1", "--set", "sasl_plain_password=${P}"])
    capsys.readouterr()
    assert main(["context", "list"]) == 0
    text = capsys.readouterr().out
    assert main(["context", "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    assert "secret" not in text
    assert text.splitlines()[1].startswith("*  a")
    assert document["current"] == "a"
    assert document["contexts"]["a"] == {"bootstrap_servers": "x:1", "sasl_password": "***", "client_id": "me"}
    assert document["contexts"]["b"]["sasl_plain_password"] == "${P}"


def test_files_are_kept_as_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["context", "add", "a", "--bootstrap", "x:1", "--set", "ssl.cafile=ca.pem"])

    assert settings()["ssl_cafile"] == str(tmp_path / "ca.pem")


def test_a_command_to_paste_leads_to_the_same_cluster_and_shows_no_password() -> None:
    parser = parser_for("topic")
    options = parser.parse_args(
        ["topic", "list", "--context", "my prod", "--set", "client.id=x", "--set", "sasl.password=secret"]
    )

    assert shown_options(options) == " --context 'my prod' --set client.id=x"


def test_an_address_and_a_context_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topic", "list", "--bootstrap", "x:1", "--context", "a"])
    assert ended.value.code == Exit.WRONG_CALL
    assert "not allowed with argument --bootstrap" in capsys.readouterr().err

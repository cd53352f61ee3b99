"""The parsers: every command has help with examples, each of these can be parsed, and help imports next to nothing."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from semel.cli import document
from semel.cli.completion import SHELLS
from semel.cli.completion_scripts import script
from semel.cli.failures import EXIT_CODES, Exit
from semel.cli.main import COMMANDS, main, parser_for
from semel.cli.parser_tree import Command, commands_of

PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"
OURS = ("serve", "topic", "produce", "consume", "group", "txn", "context", "completion")
HEAVY = (
    "asyncio",
    "ssl",
    "logging",
    "socket",
    "tomllib",
    "semel.client",
    "semel.broker",
    "semel.sync",
    "semel.records",
)


def our_commands(*more: str) -> list[Command]:
    names = (*OURS, *more)
    return [command for command in commands_of(parser_for(*names)) if not command.path or command.path[0] in names]


def examples_of(text: str) -> list[str]:
    """The calls of semel among the lines behind "examples:"."""
    lines = re.split(r"^examples?:\n", text, flags=re.MULTILINE)[-1].replace("\\\n", " ").splitlines()
    found: list[str] = []
    for line in lines:
        for part in line.split(" #")[0].split("|"):
            call = part.split("<")[0].split(">")[0]
            if re.match(r"\s*(?:[A-Z_]+=\S+ )?semel ", call):
                found.append(call[call.index("semel ") :])
    return found


@pytest.mark.parametrize("command", our_commands("pipeline"), ids=lambda command: " ".join(("semel", *command.path)))
def test_help_of_every_command_ends_with_examples_that_can_be_parsed(command: Command) -> None:
    lines = command.parser.format_help().rstrip().splitlines()
    start = max(index for index, line in enumerate(lines) if re.fullmatch("examples?:", line))
    assert all(line.startswith("  ") for line in lines[start + 1 :])

    examples = examples_of(command.parser.epilog or "")
    assert examples
    for example in examples:
        _, *arguments = shlex.split(example)
        # A wrong one ends with SystemExit.
        assert parser_for(arguments[0]).parse_args(arguments).command == arguments[0]


@pytest.mark.parametrize("command", our_commands(*COMMANDS), ids=lambda command: " ".join(("semel", *command.path)))
def test_everything_that_prints_has_json_and_every_option_a_sentence(command: Command) -> None:
    names = {name for option in command.options for name in option.names}
    if not command.commands and command.path[0] != "completion":  # it prints a program
        assert "--json" in names
    if not command.commands and command.path[0] not in ("serve", "pipeline", "completion"):
        assert "--debug" in names
    if not command.commands and command.path[0] in ("topic", "produce", "consume", "group", "txn"):
        assert {"--bootstrap", "--context", "--set"} <= names
    assert all(option.help for option in command.options)


def test_the_session_in_the_page_can_be_parsed() -> None:
    calls = examples_of("\n".join(line.removeprefix("$ ") for line in document.SESSION.splitlines()))
    assert len(calls) >= 10
    for call in calls:
        _, *arguments = shlex.split(call)
        parser_for(arguments[0]).parse_args(arguments)


# -- what is imported


def imported(*arguments: str) -> set[str]:
    """Modules that a call of semel imports."""
    program = (
        "import sys\n"
        "from semel.cli.main import main\n"
        f"try:\n    main({list(arguments)!r})\nexcept SystemExit:\n    pass\n"
        "print('imported:', *sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.rpartition("imported:")[2].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in OURS),
        ["topic", "create", "--help"],
    ],
    ids=" ".join,
)
def test_help_imports_neither_asyncio_nor_the_client(arguments: list[str]) -> None:
    found = imported(*arguments)

    assert not [name for name in HEAVY if name in found]


def test_completion_imports_neither_asyncio_nor_the_client() -> None:
    """It asks every command for its options, those of others too."""
    found = imported("completion", "bash")

    assert not [name for name in HEAVY if name in found]


def test_a_command_imports_its_own_module_only() -> None:
    found = imported("topic", "--help")

    assert [name for name in COMMANDS if f"semel.cli.{name}" in found] == ["topic"]


@pytest.mark.parametrize(
    ("arguments", "needed", "others"),
    [
        (["topic", "list"], "admin", ("producer", "consumer.consumer")),
        (["produce", "x", "y"], "producer", ("admin", "consumer")),
        (["consume", "x"], "consumer", ("admin", "producer")),
    ],
    ids=["topic list", "produce", "consume"],
)
def test_a_command_imports_the_part_of_the_client_that_it_needs(
    arguments: list[str], needed: str, others: tuple[str, ...]
) -> None:
    """Each of them takes a large part of the 0.2 s that a start may take."""
    found = imported(*arguments, "--bootstrap", "127.0.0.1:1", "--set", "bootstrap.timeout.ms=1")

    assert any(name.startswith(f"semel.client.{needed}") for name in found)
    for other in others:
        assert not [name for name in found if name.startswith(f"semel.client.{other}")]
    assert not [name for name in found if name.startswith(("semel.sync", "semel.broker", "semel.log", "semel.spark"))]


# -- what is made from the parsers


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == document.page(), "python -m semel.cli.document > docs/command-line.md"


def test_every_exit_code_is_told() -> None:
    assert set(EXIT_CODES) == set(Exit)
    for code in Exit:
        assert f"| {int(code)} | " in PAGE.read_text()


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_command_and_option(shell: str) -> None:
    parser = parser_for(*OURS)
    text = script(shell, parser)

    for command in commands_of(parser):
        for name in command.path:
            assert name in text
        for option in command.options:
            for name in option.names:
                assert (name if shell != "fish" else name.lstrip("-")) in text


def completed(*words: str, directory: Path) -> list[str]:
    """What bash offers for the last word."""
    text = script("bash", parser_for(*OURS))
    ask = f"{text}\nCOMP_WORDS=({shlex.join(words)})\nCOMP_CWORD={len(words) - 1}\n_semel\n"
    ask += "printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, cwd=directory)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_values_and_files(tmp_path: Path) -> None:
    (tmp_path / "payments.txt").touch()

    assert completed("semel", "to", directory=tmp_path) == ["topic", "top"]
    assert completed("semel", "topi", directory=tmp_path) == ["topic"]
    actions = ["create", "list", "describe", "alter", "replicas", "trim", "delete"]
    assert completed("semel", "topic", "", directory=tmp_path) == actions
    assert completed("semel", "topic", "create", "--rep", directory=tmp_path) == ["--replication"]
    assert completed("semel", "consume", "x", "--isolation", "u", directory=tmp_path) == ["uncommitted"]
    assert completed("semel", "completion", "z", directory=tmp_path) == ["zsh"]
    assert completed("semel", "produce", "pay", directory=tmp_path) == ["payments.txt"]
    assert completed("semel", "consume", "topic", "create", "--partition", directory=tmp_path) == ["--partition"]


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == Exit.OK
    assert capsys.readouterr().out.startswith("#compdef semel\n")


# -- wrong calls


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "semel: the following arguments are required: COMMAND; see semel --help"),
        (["topik"], "semel: argument COMMAND: 'topik' is not allowed, did you mean topic? (allowed: serve, "),
        (["topic", "craete"], "semel topic: argument ACTION: 'craete' is not allowed, did you mean create?"),
        (["xyzzy"], "semel: argument COMMAND: 'xyzzy' is not allowed (allowed: serve, "),
        (["consume", "x", "--isolation", "comitted"], "'comitted' is not allowed, did you mean committed?"),
        (
            ["topic", "create"],
            "semel topic create: the following arguments are required: TOPIC; see semel topic create",
        ),
        (["topic", "create", "x", "--part", "3"], "unrecognized arguments: --part 3"),
        (
            ["topic", "create", "x", "--partitions", "0"],
            "argument --partitions: '0' is not allowed; allowed: 1 or more",
        ),
        (["consume", "x", "--from", "soon"], "argument --from: 'soon' is not allowed; allowed: earliest, latest"),
        (["group", "reset", "g"], "one of the arguments --to --shift is required"),
        (["group", "reset", "g", "--to", "1", "--shift", "1"], "not allowed with argument --to"),
        (["txn", "why-stuck", "a/b"], "'a/b' is not allowed; allowed: TOPIC/PARTITION"),
        (["txn", "abort"], "one of the arguments TRANSACTIONAL_ID --hanging is required"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_call_is_told_in_one_line(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    told = capsys.readouterr().err
    assert ended.value.code == Exit.WRONG_CALL
    assert sentence in told
    assert told.count("\n") == 1


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands_options_and_values(tmp_path: Path) -> None:
    (tmp_path / "semel.fish").write_text(script("fish", parser_for(*OURS)))

    def offered(line: str) -> list[str]:
        ask = f"source {tmp_path / 'semel.fish'}; complete -C {shlex.quote(line)}"
        done = subprocess.run(["fish", "-c", ask], capture_output=True, text=True, check=True)
        return sorted(entry.split("\t")[0] for entry in done.stdout.splitlines())

    assert offered("semel to") == ["topic"]
    assert offered("semel topic ") == ["alter", "create", "delete", "describe", "list"]
    assert offered("semel topic create --rep") == ["--replication"]
    assert offered("semel consume x --isolation ") == ["committed", "uncommitted"]

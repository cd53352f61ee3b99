"""What README and docs show, run as it stands there, with another port: commands in order, programs between them.

A command that a page shows with its output prints that, but for numbers. What cannot run here is named, with where it
does run.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_blocks import Block, Command, blocks, commands

from real_broker import RealBroker, clean_environment

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    # These have tests of their own: tests/spark/test_interop_page.py, tests/unit/cli/test_log_commands.py,
    # test_security_page.py.
    if path.name not in ("pipelines.md", "log-files.md", "security.md")
)
ELSEWHERE = {
    r"make \w+.*": "the Makefile has it",
    r"pip install .*": "it is installed",
    r"git clone .*": "it is cloned",
    r"python examples/.*": "tests/client/test_examples.py",
}
TIMEOUT_S = 120.0


class Reader:
    """Does what a page says, in a directory of its own, beside a broker."""

    def __init__(self, directory: Path, temporary: str, broker: RealBroker) -> None:
        self._directory = directory
        self._temporary = temporary
        self._broker = broker
        shutil.copytree(ROOT / "examples", directory / "examples")
        (directory / "data").symlink_to(broker.data)

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        home = str(self._directory / "home")
        return clean_environment(
            PATH=path, HOME=home, XDG_CONFIG_HOME=home, TMPDIR=self._temporary, NO_COLOR="1", BOOKS_PASSWORD="secret"
        )

    def _here(self, text: str) -> str:
        """On one node, at another port."""
        text = text.replace("--replication 3 --config min.insync.replicas=2", "--replication 1")
        return text.replace("localhost:9092", self._broker.address).replace("127.0.0.1:9092", self._broker.address)

    def do(self, block: Block) -> None:
        if block.language == "console":
            for command in commands(block):
                self._run(command)
        elif block.language == "python":
            self._run_program(block)

    def _run(self, command: Command) -> None:
        if any(re.fullmatch(pattern, command.text) for pattern in ELSEWHERE):
            return
        if re.match(r"(\w+=\S+ )?semel serve", command.text):
            assert masked(self._broker.stdout.splitlines()[0]) == masked(command.shown[0])
            return
        text = self._here(command.text)
        if re.search(r"\bsemel (topic|produce|consume|group|txn|check)\b", text) and not re.search(
            "--bootstrap|--cluster", text
        ):
            text = re.sub(r"\bsemel ((?:topic|produce|consume|group|txn|check)\b[^|]*)", self._addressed, text)
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {text}"],
            capture_output=True,
            text=True,
            cwd=self._directory,
            env=self._environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"line {command.line}: {text}\n{done.stdout}\n{done.stderr}"
        printed = {masked(line) for line in done.stdout.splitlines()}
        for line in command.shown:
            assert line == "..." or masked(line) in printed, f"line {command.line}: {line!r} is not in {done.stdout}"

    def _addressed(self, found: re.Match[str]) -> str:
        return f"semel {found[1].rstrip()} --bootstrap {self._broker.address} "

    def _run_program(self, block: Block) -> None:
        program = self._directory / f"line_{block.line}.py"
        program.write_text(whole_program(self._here(block.text)))
        done = subprocess.run(
            [sys.executable, str(program)],
            capture_output=True,
            text=True,
            cwd=self._directory,
            env=self._environment(),
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"line {block.line}:\n{done.stdout}\n{done.stderr}"


def masked(line: str) -> str:
    """Without what differs from run to run: numbers, paths, and how wide a column is."""
    without_paths = re.sub(r"data in \S+,", "data in PATH,", line)
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,:]*", "N", without_paths)).strip()


def whole_program(text: str) -> str:
    """A piece that awaits at its top is the inside of a coroutine."""
    try:
        ast.parse(text)
        compile(text, "page", "exec")
    except SyntaxError:
        inside = textwrap.indent(text, "    ")
        text = f"import asyncio\n\n\nasync def main() -> None:\n{inside}\n\nasyncio.run(main())\n"
    return text if re.search(r"^(import|from) semel", text, re.MULTILINE) else f"import semel\n{text}"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    (tmp_path / "broker").mkdir()
    (tmp_path / "work").mkdir()
    broker = RealBroker(tmp_path / "broker").start()
    try:
        # Not below `tmp_path`, for sockets are made in it: their names must not be long.
        with tempfile.TemporaryDirectory() as temporary:
            yield Reader(tmp_path / "work", temporary, broker)
    finally:
        broker.stop()


def starts_spark(block: Block) -> bool:
    return block.language == "python" and "spark" in block.text


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_a_page_shows_works(page: str, reader: Reader) -> None:
    for block in blocks((ROOT / page).read_text()):
        if not starts_spark(block):
            reader.do(block)


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in PAGES if "spark" in (ROOT / page).read_text()])
def test_what_a_page_shows_of_spark_works(page: str, reader: Reader) -> None:
    for block in blocks((ROOT / page).read_text()):
        reader.do(block)


def test_every_target_that_a_page_names_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in [*PAGES, "docs/pipelines.md", "docs/log-files.md"]:
        named = re.findall(r"(?:^\$ |`)make ([a-z]+)", (ROOT / page).read_text(), re.MULTILINE)
        assert set(named) <= targets, page


def test_every_link_of_a_page_leads_somewhere() -> None:
    for page in [*PAGES, "docs/pipelines.md", "docs/log-files.md"]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
            assert ((ROOT / page).parent / link).exists(), f"{page}: {link}"


def programs() -> Iterator[tuple[str, str]]:
    """Every piece of Python that somebody may copy."""
    for page in [*PAGES, "docs/pipelines.md", "docs/log-files.md"]:
        for block in blocks((ROOT / page).read_text()):
            if block.language == "python":
                yield f"{page}:{block.line}", block.text
    for path in sorted(ROOT.glob("examples/**/*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text()


def test_no_example_can_lose_a_record_unseen() -> None:
    """Whoever sends does so in the block of its producer, whose end raises what was lost."""
    sending = [(where, ast.parse(text)) for where, text in programs() if ".send" in text]
    assert len(sending) >= 5
    for where, tree in sending:
        held = {
            node.optional_vars.id
            for node in ast.walk(tree)
            if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("send") and isinstance(node.value, ast.Name):
                assert node.value.id in held, f"{where}: {ast.unparse(node)}"


def test_a_piece_that_awaits_is_made_a_program() -> None:
    assert "asyncio.run(main())" in whole_program("async with semel.Producer() as producer:\n    pass\n")
    assert whole_program("import semel\n") == "import semel\n"


def test_output_is_compared_but_for_numbers() -> None:
    assert masked("42  paid 10.00 EUR") == masked("7 paid 3.2 EUR")
    assert masked("42 paid 10.00 EUR") != masked("42 owes 10.00 EUR")

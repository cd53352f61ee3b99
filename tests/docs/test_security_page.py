"""docs/security.md: its ten commands, run as they stand, make a cluster of three nodes that is secured."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from real_broker import clean_environment
from semel.local.ports import HeldPorts

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
PATIENCE_S = 120.0


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


class Shell:
    """Commands of the page, in a directory of their own. Ports of the page become free ones."""

    def __init__(self, directory: Path, ports: dict[str, str]) -> None:
        self.directory = directory
        self.ports = ports
        self.nodes: list[subprocess.Popen[str]] = []
        program = directory / "bin" / "semel"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m semel.cli.main "$@"\n')
        program.chmod(0o755)
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = clean_environment(PATH=path, SEMEL_CONFIG=str(directory / "contexts.toml"))

    def text(self, text: str) -> str:
        for shown, free in self.ports.items():
            text = text.replace(shown, free)
        return text

    def run(self, command: str, *, succeeds: bool = True) -> str:
        done = subprocess.run(
            ["sh", "-c", self.text(command)],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert (done.returncode == 0) is succeeds, f"{command}\n{done.stdout}{done.stderr}{self.logs()}"
        return done.stdout + done.stderr

    def start(self, command: str) -> None:
        self.nodes.append(self._started(len(self.nodes), command))

    def restart(self, number: int, command: str) -> None:
        self.nodes[number] = self._started(number, command)
        self.wait_until_ready()

    def _started(self, number: int, command: str) -> subprocess.Popen[str]:
        with (self.directory / f"log-{number}").open("w") as log:
            return subprocess.Popen(
                ["sh", "-c", f"exec {self.text(command)}"],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def logs(self) -> str:
        return "".join(path.read_text()[-1500:] for path in sorted(self.directory.glob("log-*")))

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not all("semel is ready" in path.read_text() for path in self.directory.glob("log-*")):
            assert time.monotonic() < deadline, self.logs()
            assert all(node.poll() is None for node in self.nodes), self.logs()
            time.sleep(0.05)

    def end(self) -> None:
        for node in self.nodes:
            node.send_signal(signal.SIGKILL)
            node.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shown = ["19092", "19093", "19094", "19192", "19194", "19292", "19294"]
    ports = HeldPorts()
    made = Shell(tmp_path, dict(zip(shown, map(str, ports.take(len(shown))), strict=True)))
    ports.close()
    yield made
    made.end()


def test_ten_commands_secure_a_cluster_of_three_nodes(shell: Shell) -> None:
    pytest.importorskip("cryptography")
    (settings,) = blocks("toml")
    (shell.directory / "secure.toml").write_text(shell.text(settings))
    for name in ("admin", "alice"):
        (shell.directory / f"{name}.password").write_text(f"{name}-secret\n")
    commands = [line for line in blocks("sh")[0].splitlines() if line.strip()]
    assert len(commands) == 10
    for command in commands:
        if command.endswith("&"):
            shell.start(command.removesuffix("&"))
        else:
            if shell.nodes:
                shell.wait_until_ready()
            shell.run(command)
    (questions,) = blocks("console")
    for question, answer in re.findall(r"^\$ (.*)\n(.*)$", questions, re.MULTILINE):
        assert answer in shell.run(question, succeeds=answer.startswith("allowed"))
    alice = (
        "--bootstrap 127.0.0.1:19192 --set security.protocol=SASL_SSL --set ssl.cafile=tls/ca.pem "
        "--set sasl.mechanism=SCRAM-SHA-512 --set sasl.plain.username=alice "
        '--set sasl.plain.password="$(cat alice.password)"'
    )
    shell.run(f"semel topic create payments --replication 3 {alice}")
    shell.run(f"semel produce payments paid {alice}")
    assert "paid" in shell.run(f"semel consume payments --from earliest --count 1 {alice}")
    shell.run(f"semel produce salaries high {alice}", succeeds=False)
    plain = shell.run("semel topic list --bootstrap 127.0.0.1:19092", succeeds=False)
    assert plain
    logs = "".join(path.read_text() for path in shell.directory.glob("log-*"))
    assert "alice-secret" not in logs
    assert "admin-secret" not in logs


def test_nodes_can_log_in_to_each_other_by_password_and_survive_kills(shell: Shell) -> None:
    """The same page, with SCRAM between the nodes in place of certificates."""
    pytest.importorskip("cryptography")
    settings = shell.text(blocks("toml")[0]).replace(
        "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL", "CLIENTS:SASL_SSL,NODES:SASL_SSL,CONTROLLER:SASL_SSL"
    )
    lines = [line for line in settings.splitlines() if "ssl.client.auth" not in line]
    module = 'org.apache.kafka.common.security.scram.ScramLoginModule required username=admin password="admin-secret";'
    lines += [f"'listener.name.{name}.scram-sha-512.sasl.jaas.config' = '{module}'" for name in ("nodes", "controller")]
    (shell.directory / "secure.toml").write_text("\n".join(lines).replace("User:CN=node;", ""))
    for name in ("admin", "alice"):
        (shell.directory / f"{name}.password").write_text(f"{name}-secret\n")
    commands = [line for line in blocks("sh")[0].splitlines() if line.strip()]
    serving = [command.removesuffix("&") for command in commands if command.endswith("&")]
    for command in commands[:4]:
        shell.run(command)
    for command in serving:
        shell.start(command)
    shell.wait_until_ready()
    shell.run(commands[7])
    shell.run("semel topic create t --replication 3 --context secure")
    for number in range(3):
        shell.run(f"semel produce t {number} --context secure")
        victim = 1 + number % 2  # a broker that is not the controller
        shell.nodes[victim].send_signal(signal.SIGKILL)
        shell.nodes[victim].wait()
        shell.run(f"semel produce t killed-{number} --context secure")
        shell.restart(victim, serving[victim])
    read = shell.run("semel consume t --from earliest --count 6 --context secure")
    assert all(f"{number}" in read and f"killed-{number}" in read for number in range(3))
    assert "admin-secret" not in "".join(path.read_text() for path in shell.directory.glob("log-*"))

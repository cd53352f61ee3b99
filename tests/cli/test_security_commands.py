"""semel user, acl and tls, and what a node says of listeners that others can reach."""

from __future__ import annotations

import json
import os
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from real_broker import clean_environment
from secured_node import SecuredNode
from semel.config.security_settings import STANDARD_AUTHORIZER


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    made = SecuredNode(tmp_path_factory.mktemp("node"), settings={"authorizer.class.name": STANDARD_AUTHORIZER})
    try:
        yield made.start()
    finally:
        made.reap()


def semel(*arguments: str, node: SecuredNode | None = None, code: int = 0, **variables: str) -> str:
    settings: dict[str, Any] = {} if node is None else node.as_admin()
    where = ["--bootstrap", settings.pop("bootstrap_servers")] if settings else []
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "semel.cli.main", *arguments, *where, *given],
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_users_come_and_go(node: SecuredNode, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("alice-secret\n")
    semel("user", "add", "alice", "--password-file", str(file), node=node)
    semel("user", "add", "bob", "--mechanism", "SCRAM-SHA-256", node=node, SEMEL_PASSWORD="bob-secret")
    told = json.loads(semel("user", "list", "--json", node=node))["users"]
    assert told == {"alice": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}, "bob": {"SCRAM-SHA-256": 8192}}
    semel("user", "delete", "bob", node=node)
    assert "has no password" in semel("user", "delete", "bob", node=node, code=2)
    assert "--password-file" in semel("user", "add", "carol", node=node, code=2)


def test_rules_are_made_listed_explained_and_removed(node: SecuredNode) -> None:
    semel("acl", "allow", "alice", "read", "topic:pay*", node=node)
    semel("acl", "deny", "alice", "read", "topic:payroll", node=node)
    semel("acl", "allow", "User:CN=app,O=x", "cluster-action", "cluster", node=node)
    assert "allowed: by the rule" in semel("acl", "explain", "alice", "describe", "topic:payments", node=node)
    assert "denied: by the rule" in semel("acl", "explain", "alice", "read", "topic:payroll", node=node, code=1)
    rules = json.loads(semel("acl", "list", "--principal", "alice", "--json", node=node))["rules"]
    assert [(rule["permission"], rule["name"], rule["pattern"]) for rule in rules] == [
        ("allow", "pay", "prefixed"),
        ("deny", "payroll", "literal"),
    ]
    assert "--principal or --resource" in semel("acl", "remove", node=node, code=2)
    assert "2 rules removed" in semel("acl", "remove", "--principal", "alice", node=node)
    assert "not a resource" in semel("acl", "allow", "alice", "read", "payments", node=node, code=2)
    assert "there is no operation" in semel("acl", "allow", "alice", "red", "topic:x", node=node, code=2)


def test_certificates_are_made_once_and_only_for_their_owner(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    place = str(tmp_path / "tls")
    written = json.loads(semel("tls", "init", place, "--client", "app", "--json"))["written"]
    assert written == ["ca.pem", "node.pem", "app.pem"]
    before = {name: (tmp_path / "tls" / name).read_bytes() for name in os.listdir(place)}
    assert json.loads(semel("tls", "init", place, "--client", "other", "--json"))["written"] == ["other.pem"]
    assert all((tmp_path / "tls" / name).read_bytes() == data for name, data in before.items())
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o700
    assert {stat.S_IMODE(os.stat(f"{place}/{name}").st_mode) for name in os.listdir(place)} == {0o600}
    context = ssl.create_default_context(cafile=f"{place}/ca.pem")
    context.load_cert_chain(f"{place}/app.pem")


@pytest.mark.parametrize("listener", ["PLAINTEXT://:0", "PLAINTEXT://0.0.0.0:0", "PLAINTEXT://10.0.0.1:0"])
def test_a_plain_listener_that_others_can_reach_is_refused(tmp_path: Path, listener: str) -> None:
    told = semel("serve", "--data", str(tmp_path / "data"), "--set", f"listeners={listener}", code=2)
    assert "--insecure" in told
    assert not (tmp_path / "data").exists()


def test_what_a_node_writes_is_for_its_user_alone(node: SecuredNode) -> None:
    data = node.root / "data"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in data.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (data, *data.rglob("*")) if path.is_dir()} == {0o700}

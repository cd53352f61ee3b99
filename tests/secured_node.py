"""A real node with a listener for each protocol: TLS, logins and both, with users, certificates and access rules."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from real_broker import STOP_TIMEOUT_S, clean_environment

CERTIFICATES = Path(__file__).parent / "certificates"
LISTENERS = {"SSL": "SSL", "MUTUAL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ADMIN, PASSWORD = "admin", "admin-secret"
TRUST = {"ssl_cafile": str(CERTIFICATES / "ca.pem")}
OWN = {"ssl_certfile": str(CERTIFICATES / "client.pem"), "ssl_keyfile": str(CERTIFICATES / "client.key")}


class SecuredNode:
    """Users of PLAIN are in its settings; those of SCRAM are made by `semel user`, or by a test."""

    def __init__(
        self, root: Path, users: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.root = root
        self.users = {ADMIN: PASSWORD, **(users or {})}
        self.store = root / "broker.store.pem"
        self.store.write_bytes((CERTIFICATES / "broker.store.pem").read_bytes())
        self.more = dict(settings or {})
        self.ports: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def settings(self) -> dict[str, str]:
        known = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        module = f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:{self.ports.get(name, 0)}" for name in LISTENERS),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.keystore.location": str(self.store),
            "ssl.truststore.location": str(CERTIFICATES / "ca.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/L,DEFAULT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": module,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": module,
            "super.users": f"User:{ADMIN}",
            **self.more,
        }

    def start(self) -> SecuredNode:
        path = self.root / "node.toml"
        path.touch(mode=0o600)
        path.write_text(
            "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in self.settings().items())
        )
        command = [sys.executable, "-m", "semel.cli.main", "serve", "--json", "--config", str(path)]
        with (self.root / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                [*command, "--data", str(self.root / "data")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=clean_environment(),
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the node ended instead of starting:\n{self.log()[-4000:]}"
        ready = json.loads(line)
        self.ports = {one["name"]: int(one["listening"].rpartition(":")[2]) for one in ready["listeners"]}
        return self

    def log(self) -> str:
        return (self.root / "stderr").read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(STOP_TIMEOUT_S)
        self._process = None
        return code

    def reap(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # -- settings of clients, as ours takes them

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def client(
        self, listener: str, mechanism: str = "", user: str = ADMIN, password: str = PASSWORD, **more: Any
    ) -> dict[str, Any]:
        protocol = LISTENERS[listener]
        settings: dict[str, Any] = {"bootstrap_servers": self.address(listener), "security_protocol": protocol}
        if "SSL" in protocol:
            settings.update(TRUST)
        if listener == "MUTUAL":
            settings.update(OWN)
        if mechanism:
            settings |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": password,
            }
        return {**settings, **more}

    def as_admin(self) -> dict[str, Any]:
        return self.client("SASL_SSL", "PLAIN")

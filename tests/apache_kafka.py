"""Apache Kafka from Maven, for tests: its jars for the tools, and one KRaft node that is started, stopped and killed.

The jars are resolved once into a cache directory (SEMEL_KAFKA_CACHE, by default ~/.cache/semel-kafka);
SEMEL_KAFKA_VERSION chooses the version of Kafka. Everything listens on 127.0.0.1, on ports that the first start picks
and every later start of the same node keeps.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from raw_client import RawClient
from semel.wire.spec.metadata import MetadataRequest, MetadataResponse

ASKED_FOR_KAFKA = "SEMEL_TEST_KAFKA"
VERSION = os.environ.get("SEMEL_KAFKA_VERSION", "4.1.1")
CACHE = Path(os.environ.get("SEMEL_KAFKA_CACHE", str(Path.home() / ".cache" / "semel-kafka"))) / VERSION
CERTIFICATES = Path(__file__).parent / "certificates"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
USERS = {"alice": "alice-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>semel</groupId><artifactId>kafka-tools</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
_STREAMS = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>semel</groupId><artifactId>kafka-streams</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
# Kafka's own artifacts log nowhere. The tools' output is read by tests, so only the broker gets this one.
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
QUICK_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SMALL_NODE = ("-Xmx512m", *QUICK_JAVA)
_SECURITY = "org.apache.kafka.common.security"
# Name of the listener: its security protocol.
_SECURE_LISTENERS = {"SASL_PLAINTEXT": "SASL_PLAINTEXT", "SSL": "SSL", "SASL_SSL": "SASL_SSL", "MUTUAL": "SSL"}


class KafkaDied(AssertionError):
    """The node ended although nobody asked it to, was not ready in time, or could not be made."""


def skip_reason() -> str | None:
    """Why there is no Apache Kafka on this machine, or in this run; None if there is."""
    if not os.environ.get(ASKED_FOR_KAFKA):
        return f"make conformance runs it ({ASKED_FOR_KAFKA}=1)"
    if shutil.which("java") is None:
        return "Apache Kafka needs java on the PATH"
    if shutil.which("mvn") is None and not (CACHE / "complete").exists():
        return "Kafka's jars are resolved by Maven, and mvn is not on the PATH"
    return None


def class_path() -> str:
    """Kafka's jars, from the cache or from Maven."""
    copy = ["-f", str(CACHE / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={CACHE / 'jars'}"]
    _resolve("complete", copy)
    return f"{CACHE / 'jars'}/*"


def broker_class_path() -> str:
    copy = ["dependency:copy", f"-Dartifact={_LOGGING}", f"-DoutputDirectory={CACHE / 'logging'}"]
    _resolve("logging-complete", copy)
    return f"{class_path()}:{CACHE / 'logging'}/*"


def streams_class_path() -> str:
    """Kafka Streams, with what it needs, and a logger that writes what it warns of."""
    CACHE.mkdir(parents=True, exist_ok=True)
    pom = CACHE / "streams-pom.xml"
    jars = CACHE / "streams"
    copy = ["-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    _resolve("streams-complete", copy, (pom, _STREAMS))
    return f"{jars}/*:{CACHE / 'logging'}/*"


def _resolve(done: str, goal: list[str], pom: tuple[Path, str] | None = None) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    # Several test processes may come at once: the first resolves, the others wait.
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (CACHE / done).exists():
            path, text = pom or (CACHE / "pom.xml", _POM)
            path.write_text(text)
            ran = subprocess.run(["mvn", "-q", "-B", *goal], capture_output=True, text=True, timeout=550, check=False)
            if ran.returncode:
                raise KafkaDied(f"Maven could not resolve Kafka's jars:\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}")
            (CACHE / done).touch()


class ApacheKafka:
    """One node, broker and controller. `start` may be called again after `stop` or `kill`: the same data and ports.

    The listener PLAINTEXT is always there. With `secure` there are SASL_PLAINTEXT, SSL, SASL_SSL, and MUTUAL (SSL that
    wants a client's certificate); `users` may log in by PLAIN and SCRAM, and everybody by an unsigned OAUTHBEARER
    token. `settings` are the node's own, under Kafka's names, and win over those chosen here.
    """

    def __init__(
        self,
        root: Path,
        *,
        secure: bool = False,
        users: Mapping[str, str] = USERS,
        offsets_partitions: int = 1,
        transaction_partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        java: Sequence[str] = _SMALL_NODE,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.data = root / "data"
        self.users = dict(users)
        self.starts = 0
        self._root = root
        self._secure = secure
        self._java = tuple(java)
        names = ["PLAINTEXT", "CONTROLLER", *(_SECURE_LISTENERS if secure else ())]
        self.ports: dict[str, int] = dict(zip(names, free_ports(len(names)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {
            **self._basics(offsets_partitions, transaction_partitions),
            **(self._security() if secure else {}),
            **(settings or {}),
        }

    # -- what tests ask

    @property
    def port(self) -> int:
        return self.ports["PLAINTEXT"]

    @property
    def address(self) -> str:
        return self.address_of("PLAINTEXT")

    def address_of(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise KafkaDied("the node is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What all starts so far have logged."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._root.glob("log.*")))

    # -- its life

    def start(self) -> ApacheKafka:
        """Returns when the node answers."""
        if self.is_running:
            raise KafkaDied("the node is running already")
        properties = self._root / "server.properties"
        properties.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in self._settings.items()))
        if not self.data.exists():
            self._format(properties)
        self.starts += 1
        logging = ["-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]
        command = ["java", *self._java, *logging, "-cp", broker_class_path(), "kafka.Kafka"]
        # Its own session: a Ctrl-C at the terminal ends the tests, which then end the node.
        with (self._root / f"log.{self.starts:03d}").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(properties)],
                cwd=self._root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.reap()
            raise
        return self

    def stop(self) -> int:
        """Asks it to stop; its exit code (143 when all is well: Java's answer to SIGTERM)."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        return self._end(signal.SIGKILL)

    def reap(self) -> None:
        """Whatever happened, no process is left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _end(self, number: int) -> int:
        if self._process is None:
            return 0
        process = self._process
        if process.poll() is None:
            os.kill(process.pid, number)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        finally:
            self.reap()
        return code

    def _wait_until_ready(self) -> None:
        """It opens its ports last; the first answer with itself in it says that it takes part in the cluster."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if not self.is_running:
                raise KafkaDied(f"Apache Kafka ended instead of starting:\n{self.log()[-6000:]}")
            if time.monotonic() > deadline:
                raise KafkaDied(f"Apache Kafka was not ready after {START_TIMEOUT_S} s:\n{self.log()[-6000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with RawClient(self.port, timeout_s=5) as client:
                answer = client.call(MetadataRequest(topics=[]), 9, MetadataResponse)
        except OSError:
            return False
        return [broker.port for broker in answer.brokers] == [self.port]

    def _format(self, properties: Path) -> None:
        """Lays out the empty log of the cluster's metadata, with the users in it, at the newest feature levels."""
        arguments = ["format", "--cluster-id", "c2VtZWwtdGVzdHMtMDAwMA", "--config", str(properties)]
        for user, password in self.users.items() if self._secure else ():
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                arguments += ["--add-scram", f'{mechanism}=[name="{user}",password="{password}"]']
        command = ["java", "-Xmx256m", *QUICK_JAVA, "-cp", class_path(), "kafka.tools.StorageTool", *arguments]
        # In a C locale Java would take a user's umlaut for a question mark.
        utf8 = {**os.environ, "LC_ALL": "C.UTF-8"}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False, env=utf8)
        if ran.returncode:
            raise KafkaDied(f"the storage could not be formatted:\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}")

    # -- its settings

    def _basics(self, offsets_partitions: int, transaction_partitions: int) -> dict[str, str]:
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **_SECURE_LISTENERS}
        listeners = [f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()]
        advertised = [listener for listener in listeners if not listener.startswith("CONTROLLER")]
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.address_of('CONTROLLER')}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in self.ports),
            "log.dirs": str(self.data),
            "auto.create.topics.enable": "true",
            "default.replication.factor": "1",
            "min.insync.replicas": "1",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": str(offsets_partitions),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": str(transaction_partitions),
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.max.timeout.ms": "900000",
            # A killed node that comes back is let in when its former self has timed out: 9 s by default.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }

    def _security(self) -> dict[str, str]:
        passwords = " ".join(f'user_{user}="{password}"' for user, password in self.users.items())
        login = {
            "plain": f'{_SECURITY}.plain.PlainLoginModule required username="broker" password="broker" {passwords};',
            "scram-sha-256": f"{_SECURITY}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{_SECURITY}.scram.ScramLoginModule required;",
            "oauthbearer": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
        }
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(CERTIFICATES / "broker.store.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(CERTIFICATES / "ca.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            settings[f"listener.name.{listener}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            for mechanism, config in login.items():
                settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = config
        return settings


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago. All are held at once, so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listening.getsockname()[1] for listening in held]
    for listening in held:
        listening.close()
    return ports


def _escaped(value: str) -> str:
    """As in a properties file: backslashes twice, and what is not ASCII as UTF-16 units."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = [int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2)]
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)

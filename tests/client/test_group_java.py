"""Our consumer and Kafka's own Java consumer in one group, on both brokers and with every assignor, whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from group_members import HEARTBEAT_MS, SESSION_MS, OurMember, eventually, shared, write

from apache_kafka import class_path, skip_reason
from real_broker import clean_environment

PARTITIONS = 3
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


class JavaMember:
    """Prints what it reads."""

    def __init__(self, address: str, group: str, topic: str, strategy: str, output: Path) -> None:
        if strategy == "consumer":
            properties = {"group.protocol": "consumer"}
        else:
            properties = {
                "session.timeout.ms": str(SESSION_MS),
                "heartbeat.interval.ms": str(HEARTBEAT_MS),
                "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{ASSIGNORS[strategy]}",
            }
        options = [part for name, value in properties.items() for part in ("--consumer-property", f"{name}={value}")]
        self._command = [
            *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path(), CONSOLE_CONSUMER),
            *("--bootstrap-server", address, "--group", group, "--topic", topic, "--from-beginning", *options),
        ]
        self._output = output
        self._process: asyncio.subprocess.Process | None = None

    @property
    def values(self) -> list[bytes]:
        return self._output.read_bytes().splitlines()

    async def start(self) -> None:
        with self._output.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=output, stderr=asyncio.subprocess.DEVNULL, env=clean_environment()
            )

    async def stop(self) -> None:
        """A polite end: it leaves the group."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()

    def reap(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


@pytest.mark.parametrize("leads", ["ours", "java"])
@pytest.mark.parametrize("strategy", [*ASSIGNORS, "consumer"])
async def test_a_group_with_a_java_consumer(
    address: str, topic: str, unique: Callable[[str], str], tmp_path: Path, strategy: str, leads: str
) -> None:
    reason = skip_reason()
    if reason is not None:
        pytest.skip(reason)
    group = unique("group")
    everything = frozenset((topic, index) for index in range(PARTITIONS))
    settings = {"group_protocol": "consumer"} if strategy == "consumer" else {"partition_assignment_strategy": strategy}
    ours = OurMember(address, group, topic, **settings)
    java = JavaMember(address, group, topic, strategy, tmp_path / "values")
    try:
        if leads == "ours":
            await ours.start()
            await shared(ours, everything=everything)
            await java.start()
        else:
            await java.start()
            await asyncio.to_thread(write, address, topic, PARTITIONS, [b"first"])
            await eventually(lambda: java.values == [b"first"], lambda: java.values)
            await ours.start()
        await eventually(lambda: 0 < len(ours.holds) < PARTITIONS, lambda: ours.holds)
        await asyncio.sleep(2)
        values = [b"%d" % number for number in range(60)]
        await asyncio.to_thread(write, address, topic, PARTITIONS, values)

        def read() -> list[bytes]:
            return [value for value in ours.values + java.values if value != b"first"]

        await eventually(lambda: len(read()) >= len(values), read)
        await asyncio.sleep(1)
        assert sorted(read()) == sorted(values)
        await java.stop()
        await shared(ours, everything=everything)
        await ours.stop()
    finally:
        java.reap()

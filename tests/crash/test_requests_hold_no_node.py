"""Requests that ask for much with few bytes, against a real broker: others are served meanwhile, within bounded memory.

For each attack the longest turn of the broker's loop is told, by the processor time that it took, how long a small
request on another connection waited at most, and the peak of the broker's memory. The figures are printed; bounds are
generous. Before there were slices and a budget the longest turns were 4 to 10 seconds, and the peaks 0.4 to 1.4 GB.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from long_request_attacks import ATTACKS, LEFT_OPEN, prepare
from measured_serve import OUTPUT_VARIABLE

import real_broker
from raw_client import RawClient
from real_broker import Brokers, RealBroker, clean_environment
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse

pytestmark = pytest.mark.alone

MEASURED = Path(__file__).parent / "measured_serve.py"
# A slice takes 5 ms. The interpreter's search for garbage comes on top of it, and grows with what the node holds.
MOST_TURN_MS = 500.0
MOST_PEAK_BYTES = 250 << 20
LONGEST_ANSWER_S = 3.0
PROBE_EVERY_S = 0.005


class Measured:
    """A broker, and what it has taken since the last look."""

    def __init__(self, broker: RealBroker, turns: Path) -> None:
        self.broker = broker
        self._turns = turns
        self._seen = 0
        self._peak = Path(f"/proc/{broker.pid}/status")

    def begin(self) -> None:
        self.turns_ms()
        Path(f"/proc/{self.broker.pid}/clear_refs").write_text("5")  # the peak begins anew

    def turns_ms(self) -> list[float]:
        lines = self._turns.read_text().splitlines()
        new, self._seen = lines[self._seen :], len(lines)
        return [json.loads(line)[1] for line in new]

    def peak_bytes(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", self._peak.read_text())
        assert found is not None
        return int(found[1]) << 10


class Probe(threading.Thread):
    """Another client, which asks little and again and again."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._ending = threading.Event()
        self.longest_s = 0.0
        self.failure: Exception | None = None

    def run(self) -> None:
        request = ApiVersionsRequest(client_software_name="probe", client_software_version="1")
        try:
            with RawClient(self._port, timeout_s=60) as client:
                while not self._ending.is_set():
                    began = time.perf_counter()
                    client.call(request, 3, ApiVersionsResponse)
                    self.longest_s = max(self.longest_s, time.perf_counter() - began)
                    time.sleep(PROBE_EVERY_S)
        except Exception as error:
            self.failure = error

    def end(self) -> None:
        self._ending.set()
        self.join(60)
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def measured(brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    turns = tmp_path / "turns"
    turns.touch()
    plain = RealBroker.command

    def command(broker: RealBroker) -> list[str]:
        found = plain(broker)
        at = found.index("-m")
        return [*found[:at], str(MEASURED), *found[at + 2 :]]

    def environment(**variables: str) -> Mapping[str, str]:
        return clean_environment(**variables, **{OUTPUT_VARIABLE: str(turns)})

    monkeypatch.setattr(RealBroker, "command", command)
    monkeypatch.setattr(real_broker, "clean_environment", environment)
    return Measured(brokers.start(flush="os"), turns)


def test_no_request_holds_the_node(measured: Measured) -> None:
    port = measured.broker.port
    prepare(port)
    figures = []
    too_much = []
    for name, attack in {**ATTACKS, **LEFT_OPEN}.items():
        measured.begin()
        probe = Probe(port)
        probe.start()
        taken_s = took(lambda attack=attack: close_all(attack(port)))  # type: ignore[misc]
        probe.end()
        longest_ms, peak_bytes = max(measured.turns_ms(), default=0.0), measured.peak_bytes()
        line = (
            f"{name:52} {taken_s:6.2f} s, longest turn {longest_ms:6.1f} ms, "
            f"others waited {probe.longest_s * 1000:6.1f} ms, peak {peak_bytes >> 20:4} MB"
        )
        figures.append(line)
        if longest_ms > MOST_TURN_MS or peak_bytes > MOST_PEAK_BYTES or probe.longest_s > LONGEST_ANSWER_S:
            too_much.append(line)
    print("\n" + "\n".join(figures))
    assert not too_much
    log = measured.broker.log()
    assert "Traceback" not in log
    assert not [line for line in log.split("\n") if line.startswith("2026-01-01 00:00:00,000 CRITICAL")]
    assert measured.broker.stop() == 0


def took(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def close_all(left_open: object) -> None:
    for client in left_open if isinstance(left_open, list) else ():
        client.close()

"""How long a tiny request waits while the broker is busy: rolling, flushing, compacting, opening large batches.

The broker has one loop, so whatever blocks it delays everybody. An ApiVersions request on a connection of its own is
the probe. The figures are printed; only a stall that no busy machine explains fails the test.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time

import pytest

from raw_client import RawClient, batch_of, fetch_request
from real_broker import Brokers
from semel.records.build import build_batch
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse
from semel.wire.spec.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

pytestmark = pytest.mark.alone

IDLE_S = 1.5
BUSY_S = 5.0
PROBE_EVERY_S = 0.004
# Other work on the machine may cost some of this; a blocking call of 200 ms at each roll, flush or pass costs more.
CEILING_MS = 100.0
MOST_TIMES_IDLE = 30.0
SETTINGS = {
    "log.segment.bytes": str(2 << 20),
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.retention.bytes": str(20 << 20),
}
COMPACTED, PLAIN = "compacted", "plain"


def measure(client: RawClient, seconds: float) -> list[float]:
    """Milliseconds of each answer."""
    request = ApiVersionsRequest(client_software_name="probe", client_software_version="1")
    taken_ms = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        client.call(request, 3, ApiVersionsResponse)
        taken_ms.append((time.perf_counter() - started) * 1000)
        time.sleep(PROBE_EVERY_S)
    return taken_ms


def keyed_batch(chance: random.Random) -> bytearray:
    """Few keys, much to compact."""
    count = 400
    return build_batch(
        [chance.randbytes(100) for _ in range(count)],
        keys=[b"key %d" % chance.randrange(500) for _ in range(count)],
        base_timestamp_ms=int(time.time() * 1000),
    )


def load(port: int, topic: str, seconds: float) -> None:
    """In a process of its own, so that it does not slow the probe down: writes as fast as it is answered, and reads."""
    chance = random.Random(topic)
    batches = [keyed_batch(chance) for _ in range(20)]
    values = [chance.randbytes(500) + bytes(500) for _ in range(700)]
    if topic == PLAIN:
        # Compressed and large: opened away from the loop.
        batches += [batch_of(values, timestamp_ms=int(time.time() * 1000), codec=codec) for codec in (1, 4)]
    end = time.monotonic() + seconds
    with RawClient(port) as client:
        written = 0
        while time.monotonic() < end:
            answer = client.produce(topic, 0, chance.choice(batches))
            assert answer.error_code == 0, answer
            written += 1
            if written % 10 == 0:
                client.send(fetch_request(topic, 0, max(0, answer.base_offset - 5000), max_bytes=4 << 20), 11)
                client.read_frame()


def percentile(taken_ms: list[float], share: float) -> float:
    return sorted(taken_ms)[min(len(taken_ms) - 1, int(len(taken_ms) * share))]


def described(name: str, taken_ms: list[float]) -> str:
    median, p99 = statistics.median(taken_ms), percentile(taken_ms, 0.99)
    return f"{name}: {len(taken_ms)} probes, median {median:.2f} ms, p99 {p99:.2f} ms, longest {max(taken_ms):.1f} ms"


@pytest.mark.parametrize("flush", ["fsync", "os"])
def test_a_tiny_request_is_answered_while_the_broker_rolls_flushes_and_compacts(brokers: Brokers, flush: str) -> None:
    broker = brokers.start(flush=flush, settings=SETTINGS)
    with RawClient(broker.port) as probe:
        for topic in (COMPACTED, PLAIN):
            probe.make_topic(topic)
        set_compaction(probe, COMPACTED)
        idle = measure(probe, IDLE_S)
        spawning = multiprocessing.get_context("spawn")
        writers = [
            spawning.Process(target=load, args=(broker.port, topic, BUSY_S + 1), daemon=True)
            for topic in (COMPACTED, PLAIN)
        ]
        for writer in writers:
            writer.start()
        time.sleep(1.0)  # until they write
        busy = measure(probe, BUSY_S)
        for writer in writers:
            writer.join(30)
        assert [writer.exitcode for writer in writers] == [0, 0]
    print(f"\nflush {flush}\n  {described('idle', idle)}\n  {described('busy', busy)}")
    assert "compacted" in broker.log(), "nothing was compacted: the load is too small"
    assert len(list((broker.data / f"{PLAIN}-0").glob("*.log"))) > 2
    assert "Traceback" not in broker.log()
    assert percentile(busy, 0.99) < max(CEILING_MS, MOST_TIMES_IDLE * percentile(idle, 0.99))


def set_compaction(client: RawClient, topic: str) -> None:
    change = ConfigAlteration(name="cleanup.policy", config_operation=0, value="compact")
    resource = IncrementalAlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = client.call(request, 1, IncrementalAlterConfigsResponse)
    assert [response.error_code for response in answer.responses] == [0]

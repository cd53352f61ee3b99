"""The real Host: system clocks, files, sockets, chance from the system, and a worker process."""

from __future__ import annotations

import random
import time

from semel.host.api import Host
from semel.host.real_disk import RealDisk
from semel.host.real_jobs import RealJobs
from semel.host.real_network import RealNetwork


class RealClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def real_host(*, max_open_files: int | None = None, send_buffer_bytes: int | None = None) -> Host:
    return Host(
        clock=RealClock(),
        disk=RealDisk(max_open_files),
        network=RealNetwork(send_buffer_bytes),
        random=random.Random(),
        jobs=RealJobs(),
    )

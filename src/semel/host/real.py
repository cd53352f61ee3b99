"""The real Host: system clocks, files, sockets, chance from the system, and a worker process."""

from __future__ import annotations

import gc
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

    monotonic_ns = staticmethod(time.monotonic_ns)


def keep_memory() -> None:
    """A full collection of garbage walks over everything that was ever made: a hundred thousand entries of coordinators
    take it 50 ms, and while they are made it happens again and again. What is young is looked through first, so that
    what is set apart for good is hardly ever garbage."""
    gc.collect(1)
    gc.freeze()


def real_host(*, max_open_files: int | None = None, send_buffer_bytes: int | None = None) -> Host:
    return Host(
        clock=RealClock(),
        disk=RealDisk(max_open_files),
        network=RealNetwork(send_buffer_bytes),
        random=random.Random(),
        jobs=RealJobs(),
        keep_memory=keep_memory,
    )

"""A log on a disk that fails now and then, in any call, over several lives: what was flushed is there ever after."""

from __future__ import annotations

import errno
import logging
from random import Random

import pytest
from log_samples import batch, load, offsets_from, write

from semel.log.errors import BrokenLog, Refused
from semel.log.log import IDENTITY_FILE
from semel.sim.disk import Kind, SimDisk
from semel.sim.loop import run

FAILING: list[Kind] = ["create", "write", "truncate", "mkdir", "rename", "remove", "sync_dir", "read"]
IDENTITY = b"version: 0\ntopic_id: abc"
SETTINGS = {"segment_ms": 1000, "index_interval_bytes": 0}


class Lives:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.now_ms = 0
        self.durable_end = 0
        self.begin(SimDisk(seed))

    def begin(self, disk: SimDisk, *, clean: bool = False, recovery_point: int = 0) -> None:
        self.disk = disk
        self.log, _ = load(disk, clean=clean, recovery_point=recovery_point, **SETTINGS)
        self.log.identity = IDENTITY

    def live(self) -> bool:
        """Whether it could go on: a disk that refuses to flush ends the node."""
        for _ in range(self.random.randrange(5, 30)):
            if self.random.random() < 0.35:
                number = self.random.choice([errno.ENOSPC, errno.EIO])
                self.disk.fail_at(self.random.choice(FAILING), self.random.randrange(1, 5), number)
            try:
                self.step()
            except Refused:
                pass
            except (OSError, BrokenLog):
                return False
        return True

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.7 or not self.log.segments:
            self.now_ms += self.random.choice([-300, 0, 10, 1200])
            write(self.log, batch(b"a", timestamp_ms=max(self.now_ms, 0)))
        elif kind < 0.85:
            end = self.log.end_offset
            run(self.log.flush())
            self.durable_end = end
        elif kind < 0.95:
            run(self.log.settle())
        else:
            self.log.roll()

    def die_and_begin_again(self, goes_on: bool) -> None:
        how = self.random.choice(["killed", "powerless", "stopped"] if goes_on else ["killed", "powerless"])
        if how == "stopped":
            try:
                self.log.close()
                self.durable_end = self.log.end_offset
            except OSError:
                how = "killed"
        after = self.disk.after_power_loss(self.seed) if how == "powerless" else self.disk.after_kill()
        path = f"{self.log.directory}/{IDENTITY_FILE}"
        if not after.exists(path) or after.read_file(path) != IDENTITY:
            assert not self.durable_end, "the store would take it for another topic's log"
            return self.begin(SimDisk(self.seed + 1))
        checkpoint = self.durable_end if how == "stopped" else self.random.randint(0, self.durable_end)
        self.begin(after, clean=how == "stopped", recovery_point=checkpoint)
        found = offsets_from(self.log, 0)
        assert found == list(range(len(found)))
        assert len(found) >= self.durable_end
        self.durable_end = len(found)  # what a start has found is durable, and served
        return None


@pytest.mark.parametrize("first", range(0, 800, 100))
def test_what_was_flushed_is_there_whatever_the_disk_refuses(first: int) -> None:
    logging.getLogger("semel.log").setLevel(logging.CRITICAL)
    try:
        for seed in range(first, first + 100):
            lives = Lives(seed)
            for _ in range(3):
                lives.die_and_begin_again(lives.live())
    finally:
        logging.getLogger("semel.log").setLevel(logging.NOTSET)

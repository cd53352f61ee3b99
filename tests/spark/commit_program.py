"""A commit in a process of its own, so that it can be killed. Arguments: address, checkpoint, query, topic, batch."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sink_world import FakeCheckpoint, SinkWorld, rows_of


def main() -> None:
    address, checkpoint, query_id, topic, batch_id = sys.argv[1:]
    world = SinkWorld(address, FakeCheckpoint(Path(checkpoint), query_id), topic)
    staged = [world.stage(rows_of(int(batch_id), task), int(batch_id), run_id=f"run-{task}") for task in range(2)]
    print(asyncio.run(world.commit(int(batch_id), staged)))


if __name__ == "__main__":
    main()

"""`semel` with a measure of its loop: how much processor time each turn takes is written to a file, when it is much.

Time that other programs take on a busy machine does not count, so what is measured is what a turn really holds up.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

# What a turn may take without being noted.
LEAST_MS = 2.0
OUTPUT_VARIABLE = "MEASURED_TURNS"


def measure(output: str) -> None:
    cls: Any = asyncio.BaseEventLoop
    plain = cls._run_once
    with_file = open(output, "a", buffering=1)  # noqa: SIM115

    def measured(loop: Any) -> None:
        before = time.thread_time()
        plain(loop)
        taken_ms = (time.thread_time() - before) * 1000
        if taken_ms >= LEAST_MS:
            with_file.write(json.dumps([round(time.time(), 3), round(taken_ms, 2)]) + "\n")

    cls._run_once = measured


if __name__ == "__main__":
    measure(os.environ.pop(OUTPUT_VARIABLE))
    from semel.cli.main import main

    sys.exit(main())

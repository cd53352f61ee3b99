"""How many files and connections a node may have open."""

from __future__ import annotations

import resource
from pathlib import Path

from real_broker import RealBroker


def test_a_node_may_open_as_many_files_as_the_system_grants_it(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    broker = RealBroker(tmp_path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        broker.start()
        assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        broker.reap()

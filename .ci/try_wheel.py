"""What a wheel has to do in an empty environment: all that is compiled is there, a node starts, records come back."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import semel
from semel.sync import Consumer, Producer
from semel.testing import Broker

COMPILED = (
    "records.kernel",
    "records.column_kernel",
    "log.index_kernel",
    "log.row_kernel",
    "log.append_kernel",
    "log.ordinary_kernel",
    "replication.term_kernel",
    "rpc.served_kernel",
    "broker.lane_kernel",
    "metrics.counts_kernel",
    "host._native",
    "host._rounds",
)

assert Path(sys.prefix) in Path(semel.__file__).parents, semel.__file__
for name in COMPILED:
    file = import_module(f"semel.{name}").__file__
    assert file is not None
    assert file.endswith(".so"), f"{name} is not compiled: {file}"
assert version("semel") == semel.__version__
shown = subprocess.run([Path(sys.prefix) / "bin/semel", "--version"], capture_output=True, text=True, check=True)
assert semel.__version__ in shown.stdout, shown.stdout

with Broker() as broker:
    with Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="zstd") as producer:
        for number in range(1000):
            producer.send("payments", b"%d" % number)
    with Consumer("payments", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        payments = iter(consumer)
        assert [next(payments).value for _ in range(1000)] == [b"%d" % number for number in range(1000)]
print(f"semel {semel.__version__} works")

"""What a worker loads for a small batch: workers are started often, and the batch waits for them."""

from __future__ import annotations

import subprocess
import sys

WORK = """
import sys
import pyarrow as pa
from semel.host.real import RealClock
from semel.records.columns import read_columns
from semel.records.batch import read_header
from semel.spark.encoding import RowEncoder
from semel.spark.schema import as_source_columns
from semel.spark.sink_options import Partitioner
from semel.spark.staging import StagingWriter
from semel.spark.topic_facts import TopicFacts
import semel.spark.sink, semel.spark.reading, semel.spark.committer

kept = []
encoder = RowEncoder(
    lambda topic, placement, partition, batch, records: kept.append(batch),
    lambda topic: TopicFacts(topic, 3),
    RealClock(),
    topic="t", dead_letter_topic=None, partitioner=Partitioner.MURMUR2, codec=0, level=None, first_turn=0,
)
schema = pa.schema([("key", pa.string()), ("value", pa.string())])
column = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\\0\\0\\0\\0\\1\\0\\0\\0"), pa.py_buffer(b"a")])
encoder.add(pa.RecordBatch.from_arrays([column, column], schema=schema))
encoder.flush()
(batch,) = kept
read = read_columns([(batch, read_header(batch))], first_offset=0, with_headers=True, end_offset=1 << 60)
assert read.batch.num_rows == 1
print("pandas" in sys.modules)
"""


def test_rows_are_read_and_written_without_pandas() -> None:
    """It is installed for Python with state. pyarrow loads it, in a third of a second, to make an array of a list."""
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout.strip(), done.returncode) == ("False", 0), done.stderr

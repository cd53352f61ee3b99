"""A checkpoint that is put back to what it was two batches ago: the sink refuses it, and goes on when it is adopted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sink_world import committed_rows

from semel.cli.main import main
from semel.spark.adoption import marker_of
from semel.sync import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 20
PATIENCE_S = 120


class CopyingStream:
    """From a topic to a topic, `ROWS` offsets a batch."""

    def __init__(self, spark: SparkSession, address: str, topics: tuple[str, str], checkpoint: str) -> None:
        self._spark = spark
        self._from, self.to = topics
        self.options = {"kafka.bootstrap.servers": address, "topic": self.to, "checkpointLocation": checkpoint}

    def run(self) -> None:
        """To the end of what is there; raises what the query failed of."""
        reader = self._spark.readStream.format("semel").option("subscribe", self._from)
        reader = reader.option("kafka.bootstrap.servers", self.options["kafka.bootstrap.servers"])
        rows = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=ROWS).load().select("key", "value")
        query = rows.writeStream.format("semel").options(**self.options).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(PATIENCE_S)
        finally:
            query.stop()

    def written(self) -> list[bytes]:
        return [value for _, value in committed_rows(self.options["kafka.bootstrap.servers"], self.to)]

    def marked(self) -> int | None:
        marker = marker_of(self.options)[1]
        return None if marker is None else marker.number


def test_a_checkpoint_of_two_batches_ago_is_refused_until_it_is_adopted(
    spark: SparkSession,
    address: str,
    new_topic: Callable[..., str],
    producer: Producer,
    checkpoint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from pyspark.errors import StreamingQueryException

    source, sink = new_topic("in", partitions=1), new_topic("out", partitions=1)
    stream = CopyingStream(spark, address, (source, sink), checkpoint)

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.send(source, b"%d" % number)
        producer.flush()

    send(0, 2 * ROWS)
    stream.run()
    backup = tmp_path / "backup"
    shutil.copytree(checkpoint, backup)
    send(2 * ROWS, 2 * ROWS)
    stream.run()
    assert stream.marked() == 3
    sent = [b"%d" % number for number in range(4 * ROWS)]
    assert stream.written() == sent

    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    for _ in range(2):  # a second start does not wear it down
        with pytest.raises(StreamingQueryException) as refused:
            stream.run()
        told = str(refused.value)
        assert "batch 3 was committed last, and batch 2 does not follow it" in told
        assert "the checkpoint was restored from a backup, copied or edited" in told
        assert "semel pipeline adopt" in told
    assert (stream.marked(), stream.written()) == (3, sent), "nothing was changed"

    assert main(["pipeline", "adopt", checkpoint, "--address", address, "--yes"]) == 0
    assert "Batches 2 to 3 were published before: what they have written will be written again." in (
        capsys.readouterr().out
    )
    assert stream.marked() == 1
    send(4 * ROWS, ROWS)
    stream.run()

    assert stream.marked() == 4
    new = [b"%d" % number for number in range(4 * ROWS, 5 * ROWS)]
    assert stream.written() == [*sent, *sent[2 * ROWS :], *new], "batches 2 and 3 again, as said, and then batch 4"

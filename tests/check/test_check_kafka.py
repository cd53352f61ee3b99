"""`semel check` on Apache Kafka: everything goes through the client, so it judges any cluster of the protocol."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apache_kafka import ApacheKafka, skip_reason
from semel.cli.failures import Exit
from semel.cli.main import main


@pytest.mark.kafka
def test_apache_kafka_passes_with_cuts_and_delays(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    reason = skip_reason()
    if reason is not None:
        pytest.skip(reason)
    kafka = ApacheKafka(tmp_path).start()
    try:
        arguments = ["--bootstrap", kafka.address, "--seconds", "10", "--json", "--faults", "cut,delay"]
        code = main(["check", *arguments, "--history", str(tmp_path / "history.jsonl")])
    finally:
        kafka.reap()
    document = json.loads(capsys.readouterr().out)
    assert code == Exit.OK, document
    assert document["counts"]["committed"] > 0

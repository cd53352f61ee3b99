"""The command line on a running broker: ours always, and Apache Kafka when it is asked for.

`semel("topic", "list")` calls it in this process, with the address of the broker, and returns what it printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_calls import Semel

# The brokers are those of the client's tests.
from client.conftest import address as address
from client.conftest import flavour as flavour
from client.conftest import kafka_node as kafka_node
from client.conftest import topic as topic
from client.conftest import unique as unique


@pytest.fixture(autouse=True)
def contexts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test meets the contexts of whoever runs it."""
    path = tmp_path / "contexts.toml"
    monkeypatch.setenv("SEMEL_CONFIG", str(path))
    return path


@pytest.fixture
def semel(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Semel:
    return Semel(address, tmp_path / "stdin", monkeypatch, capsysbinary)

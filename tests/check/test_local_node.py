"""A node of the checker's own: killed, started again on the same port and data, paused, and told of when it fails."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from semel.client.admin.admin import Admin
from semel.client.admin.values import NewTopic
from semel.sim.attack.local_node import LocalNode, NodeDied


async def test_a_node_comes_back_with_its_port_and_data(tmp_path: Path) -> None:
    node = LocalNode("node", tmp_path)
    try:
        await node.start()
        port = node.port
        assert port > 0
        await node.start()
        assert node.port == port, "one that runs is left alone"
        async with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
            await admin.create_topics(NewTopic("kept", 1))
        await node.kill()
        assert not node.is_running
        await node.kill()
        await node.start()
        assert node.port == port
        node.pause()
        node.resume()
        async with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
            assert "kept" in await admin.list_topics()
    finally:
        node.close()


async def test_a_node_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no luck today')"]
    node = LocalNode("node", tmp_path, command=command)
    with pytest.raises(NodeDied, match="no luck today"):
        await node.start()
    node.close()


async def test_a_node_that_ends_by_itself_is_not_started_again_in_silence(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('semel is ready at 127.0.0.1:1', flush=True)"]
    node = LocalNode("node", tmp_path, command=command)
    await node.start()
    await asyncio.to_thread(node.process.wait)
    with pytest.raises(NodeDied, match="ended with code 0"):
        await node.start()
    node.close()

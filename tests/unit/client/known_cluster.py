"""A client's knowledge of a scripted cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from scripted_broker import Asked, ScriptedCluster
from semel.client.cluster import Cluster


@asynccontextmanager
async def known(cluster: ScriptedCluster, **settings: Any) -> AsyncIterator[Cluster]:
    """A client's cluster, started."""
    client = Cluster(cluster.host(), cluster.settings(**settings))
    try:
        await client.start()
        yield client
    finally:
        await client.close()


def asked_topics(asked: Asked) -> list[str] | None:
    return None if asked.body.topics is None else [topic.name for topic in asked.body.topics]

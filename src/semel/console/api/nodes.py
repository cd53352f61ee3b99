"""Nodes: roles, the quorum of controllers, who leads and lags, disks; and the settings of one."""

from __future__ import annotations

import asyncio
from typing import Any

from semel.client.admin.values import ConfigResource, QuorumReplica
from semel.client.errors import SemelError
from semel.console.query import Query
from semel.console.watch import Watch, now_ms
from semel.views.topics import setting_document

_PATIENCE_S = 2.0


async def nodes(watch: Watch, query: Query) -> dict[str, Any]:
    view, info = await watch.view.get(), await watch.info.get()
    disks = {one["node"]: one for one in info["nodes"]}
    document = view.document()
    return {
        **{name: document[name] for name in ("cluster_id", "controller", "controller_epoch", "has_controller")},
        "replicas": document["replicas"],
        "features": info["features"],
        "nodes": [
            {**node, "disk": disks.get(node["id"])}
            for node in document["nodes"]  # type: ignore[attr-defined]
        ],
        "moving": document["moving"],
        "under_replicated": document["under_replicated"][:100],  # type: ignore[index]
        "quorum": await _quorum(watch),
    }


async def _quorum(watch: Watch) -> dict[str, Any] | None:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            found = await watch.admin.describe_quorum()
    except (SemelError, TimeoutError):
        return None
    now = now_ms()

    def replica(one: QuorumReplica) -> dict[str, Any]:
        return {
            "node": one.node_id,
            "end_offset": one.end_offset,
            "lag": max(0, found.high_watermark - one.end_offset),
            "caught_up_ms_ago": None if one.last_caught_up_ms < 0 else max(0, now - one.last_caught_up_ms),
        }

    return {
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "voters": [replica(one) for _, one in sorted(found.voters.items())],
        "observers": [replica(one) for _, one in sorted(found.observers.items())],
    }


async def node_settings(watch: Watch, query: Query) -> dict[str, Any]:
    """A secret has no value here: brokers do not tell it."""
    node_id = query.number("id", 0)
    resource = ConfigResource.broker(node_id)
    settings = (await watch.admin.describe_configs(resource))[resource]
    return {
        "node": node_id,
        "settings": [
            {
                "name": name,
                **setting_document(settings[name]),
                "is_secret": settings[name].is_sensitive,
                "is_read_only": settings[name].is_read_only,
            }
            for name in sorted(settings)
        ],
    }

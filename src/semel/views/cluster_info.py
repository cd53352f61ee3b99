"""What a cluster is and can do, as a document: nodes, the features that are switched on, what disks hold."""

from __future__ import annotations

from typing import Any

from semel.client.admin.admin import Admin
from semel.client.admin.values import LogDir


async def cluster_info(admin: Admin) -> dict[str, Any]:
    cluster = await admin.describe_cluster()
    versions = await admin.describe_versions()
    disks = await admin.describe_log_dirs()
    features: dict[str, int] = {}
    for one in versions.values():
        features |= one.finalized_features
    return {
        "cluster_id": cluster.cluster_id,
        "features": dict(sorted(features.items())),
        "nodes": [
            {
                "node": node_id,
                "address": f"{node.host}:{node.port}",
                "rack": node.rack,
                "apis": len(versions[node_id].apis) if node_id in versions else None,
                **_held(disks.get(node_id, {})),
            }
            for node_id, node in sorted(cluster.nodes.items())
        ],
    }


def _held(directories: dict[str, LogDir]) -> dict[str, int | None]:
    """On all disks of a node. What is free is not told by brokers before Kafka 3.3."""
    free = [one.usable_bytes for one in directories.values() if one.usable_bytes is not None]
    return {
        "replicas": sum(len(one.replicas) for one in directories.values()),
        "bytes": sum(replica.size_bytes for one in directories.values() for replica in one.replicas.values()),
        "free_bytes": sum(free) if free else None,
    }

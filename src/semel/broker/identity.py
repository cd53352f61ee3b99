"""Whose data directory this is: Kafka's `meta.properties`, written once and checked at every start."""

import base64
from pathlib import PurePosixPath
from random import Random

from semel.host.api import Disk

_FILE = "meta.properties"
_OF_A_NODE = (_FILE, "__cluster_metadata-0", ".lock")
_OF_A_PARTITION = "partition.metadata"
_OF_THE_SYSTEM = "lost+found"


class WrongDirectory(Exception):
    """The data directory belongs to another node or cluster, or is none."""


def check_place(disk: Disk, root: str) -> None:
    """Raises WrongDirectory where a node must not keep its data. Call it before anything is written there."""
    for parent in PurePosixPath(root).parents:
        for name in (_FILE, _OF_A_PARTITION):
            if disk.exists(f"{parent}/{name}"):
                raise WrongDirectory(
                    f"{root} lies inside the data directory of another node ({parent}/{name}): choose a directory "
                    "outside of it"
                )
    names = disk.list_dir(root) if disk.is_dir(root) else []
    foreign = [name for name in names if name != _OF_THE_SYSTEM]
    if foreign and not any(name in foreign for name in _OF_A_NODE):
        others = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise WrongDirectory(
            f"{root} is no data directory of a node, and not empty (it holds {foreign[0]!r}{others}): choose a new or "
            "empty directory"
        )


def cluster_id_of(disk: Disk, root: str, node_id: int, random: Random) -> str:
    """The cluster id in the directory's properties, which are made when they are not there yet."""
    path = f"{root}/{_FILE}"
    if not disk.exists(path):
        cluster_id = _new_id(random)
        lines = ["version=1", f"cluster.id={cluster_id}", f"node.id={node_id}", f"directory.id={_new_id(random)}"]
        disk.replace_file_now(path, ("\n".join(lines) + "\n").encode())
        return cluster_id
    text = disk.read_file(path).decode(errors="replace")
    properties = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
    if "\N{REPLACEMENT CHARACTER}" in text or not properties.get("cluster.id"):
        raise WrongDirectory(f"{path} is damaged: put back the one that was there, its cluster.id and node.id at least")
    if properties.get("node.id") != str(node_id):
        raise WrongDirectory(
            f"{root} belongs to node {properties.get('node.id')}, but node.id is {node_id}: "
            "set node.id to that number, or choose another data directory"
        )
    return properties["cluster.id"]


def _new_id(random: Random) -> str:
    return base64.urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()

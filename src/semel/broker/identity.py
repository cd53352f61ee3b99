"""Whose data directory this is: Kafka's `meta.properties`, written once and checked at every start.

A node alone writes it at its first start. One of several is formatted by `semel storage format`, with the id of their
cluster.
"""

import base64
from pathlib import PurePosixPath
from random import Random
from typing import NamedTuple

from semel.host.api import Disk
from semel.log.checkpoints import HIGH_WATERMARKS
from semel.log.node_file import FILE_NAME as _NOTES

FILE_NAME = "meta.properties"
_OF_A_NODE = (FILE_NAME, "__cluster_metadata-0", ".lock")
_OF_KAFKA = ("__cluster_metadata-0/quorum-state", HIGH_WATERMARKS)
_OF_A_PARTITION = "partition.metadata"
_OF_THE_SYSTEM = "lost+found"
_UUID_BYTES = 16
_DASH = 62  # as a digit of base64


class WrongDirectory(Exception):
    """The data directory belongs to another node or cluster, or is none."""


def check_place(disk: Disk, root: str) -> None:
    """Raises WrongDirectory where a node must not keep its data. Call it before anything is written there."""
    for parent in PurePosixPath(root).parents:
        for name in (FILE_NAME, _OF_A_PARTITION):
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
    # We have them too, but then there are notes of ours beside them.
    of_kafka = [name for name in _OF_KAFKA if disk.exists(f"{root}/{name}")]
    if of_kafka and not disk.exists(f"{root}/{_NOTES}"):
        raise WrongDirectory(
            f"{root} was written by Apache Kafka ({of_kafka[0]}): semel cannot take over such a directory, nothing in "
            "it was changed; choose another one, and copy the records with a client"
        )


class Identity(NamedTuple):
    """What `meta.properties` says: of which cluster and which node, and the id of the directory itself."""

    cluster_id: str
    node_id: int
    directory_id: str

    @property
    def directories(self) -> list[bytes]:
        """The id of the directory as registrations carry it, as the only one; none, if it is no UUID."""
        try:
            directory = base64.urlsafe_b64decode(self.directory_id + "==")
        except ValueError:
            return []
        return [directory] if len(directory) == _UUID_BYTES else []


def identity_of(disk: Disk, root: str, node_id: int, random: Random, *, may_format: bool) -> Identity:
    """The identity of a node's directory. `may_format`: a directory that has none becomes that of a new cluster."""
    identity = read_identity(disk, root)
    if identity is None:
        if not may_format:
            raise WrongDirectory(
                f"{root} is not formatted, and with controller.listener.names this node is one of a cluster: give all "
                "of them the same id with semel storage format --cluster-id ID, and the settings of each"
            )
        identity = Identity(new_id(random), node_id, new_id(random))
        write_identity(disk, root, identity)
    elif not identity.directory_id:
        identity = identity._replace(directory_id=new_id(random))
        write_identity(disk, root, identity)
    if identity.node_id != node_id:
        raise WrongDirectory(
            f"{root} belongs to node {identity.node_id}, but node.id is {node_id}: "
            "set node.id to that number, or choose another data directory"
        )
    return identity


def format_directory(disk: Disk, root: str, cluster_id: str, node_id: int, random: Random) -> tuple[Identity, bool]:
    """Makes a directory that of a node; one that is formatted already is left as it is: whose it is, and False."""
    check_place(disk, root)
    identity = read_identity(disk, root)
    if identity is not None:
        return identity, False
    identity = Identity(cluster_id, node_id, new_id(random))
    disk.make_dirs(root)
    write_identity(disk, root, identity)
    disk.sync_parents_now(root)
    return identity, True


def read_identity(disk: Disk, root: str) -> Identity | None:
    """None if the directory was never formatted; the directory id of one from before there were any is empty."""
    path = f"{root}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    text = disk.read_file(path).decode(errors="replace")
    properties = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
    cluster_id, node_id = properties.get("cluster.id", ""), properties.get("node.id", "")
    is_number = node_id.isascii() and node_id.isdigit()
    if "\N{REPLACEMENT CHARACTER}" in text or not cluster_id or not is_number:
        raise WrongDirectory(f"{path} is damaged: put back the one that was there, its cluster.id and node.id at least")
    return Identity(cluster_id, int(node_id), properties.get("directory.id", ""))


def write_identity(disk: Disk, root: str, identity: Identity) -> None:
    lines = [
        "version=1",
        f"cluster.id={identity.cluster_id}",
        f"node.id={identity.node_id}",
        f"directory.id={identity.directory_id}",
    ]
    disk.replace_file_now(f"{root}/{FILE_NAME}", ("\n".join(lines) + "\n").encode())


def new_id(random: Random) -> str:
    """A random id as Kafka writes them: a UUID of version 4 in 22 characters, of which the first is no dash."""
    data = bytearray(random.randbytes(16))
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    if data[0] >> 2 == _DASH:
        data[0] &= 0x7F  # a dash would be taken for an option of a command
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

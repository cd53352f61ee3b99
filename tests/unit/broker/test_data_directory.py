"""Where a node may keep its data: in a directory of its own, and nowhere else."""

from __future__ import annotations

import base64
from random import Random
from uuid import UUID

import pytest
from broker_harness import ROOT, Node, batch_of, simulated

from semel.broker.identity import (
    Identity,
    WrongDirectory,
    check_place,
    identity_of,
    new_id,
    read_identity,
    write_identity,
)
from semel.sim.disk import SimDisk


def disk_with(*paths: str) -> SimDisk:
    disk = SimDisk()
    for path in paths:
        disk.make_dirs(path.rpartition("/")[0])
        disk.open(path, create=True).close()
    return disk


@pytest.mark.parametrize("root", ["/data/t-0", "/data/t-0/deeper/still", "/data/beside"])
@simulated()
async def test_a_directory_inside_that_of_another_node_is_refused(node: Node, root: str) -> None:
    client = await node.client()
    await client.create_topic("t")
    await client.produce("t", batch_of(b"kept"))
    await node.stop()
    with pytest.raises(WrongDirectory, match=f"{root} lies inside the data directory of another node") as refused:
        check_place(node.disk, root)
    assert "\n" not in str(refused.value)
    assert ROOT in str(refused.value)
    await node.start()


def test_a_directory_inside_that_of_a_partition_is_refused_also_without_the_properties_of_the_node() -> None:
    with pytest.raises(WrongDirectory, match=r"/d/t-0/partition\.metadata"):
        check_place(disk_with("/d/t-0/partition.metadata"), "/d/t-0/deeper")


@pytest.mark.parametrize("name", ["report.csv", "t-0/00000000000000000000.log", "photos-2019/1.jpg", "new\nline"])
def test_a_directory_of_somebody_else_is_refused_and_nothing_is_written_there(name: str) -> None:
    disk = disk_with(f"/srv/{name}")
    with pytest.raises(WrongDirectory, match="/srv is no data directory of a node, and not empty") as refused:
        check_place(disk, "/srv")
    assert "\n" not in str(refused.value)
    assert disk.list_dir("/srv") == [name.partition("/")[0]]


@simulated(starts=False)
async def test_a_node_that_is_refused_its_directory_leaves_nothing_behind(node: Node) -> None:
    node.disk.make_dirs(ROOT)
    node.disk.open(f"{ROOT}/report.csv", create=True).close()
    with pytest.raises(WrongDirectory, match=r"holds 'report\.csv'"):
        await node.start()
    assert node.disk.list_dir(ROOT) == ["report.csv"]


def test_how_many_there_are_is_said_and_not_all_their_names() -> None:
    with pytest.raises(WrongDirectory, match=r"it holds 'a' and 2 more"):
        check_place(disk_with("/srv/a", "/srv/b", "/srv/c"), "/srv")


KAFKAS = ("/d/meta.properties", "/d/.kafka_cleanshutdown", "/d/t-0/00000000000000000000.log")


@pytest.mark.parametrize("sign", ["__cluster_metadata-0/quorum-state", "replication-offset-checkpoint"])
@simulated(starts=False)
async def test_a_directory_that_apache_kafka_wrote_is_refused_in_one_line_and_left_as_it_is(
    node: Node, sign: str
) -> None:
    for path in (*KAFKAS, f"/d/{sign}"):
        path = path.replace("/d", ROOT)
        node.disk.make_dirs(path.rpartition("/")[0])
        node.disk.open(path, create=True).close()
    calls = node.disk.calls
    with pytest.raises(WrongDirectory, match=r"was written by Apache Kafka .* nothing in it was changed") as refused:
        await node.start()
    assert "\n" not in str(refused.value)
    assert node.disk.calls == calls


def test_a_directory_with_notes_of_ours_is_ours_whatever_else_is_in_it() -> None:
    check_place(disk_with(*KAFKAS, "/d/__cluster_metadata-0/quorum-state", "/d/semel-node"), "/d")


@pytest.mark.parametrize(
    "paths",
    [
        (),
        ("/srv/lost+found/x",),
        ("/srv/.lock",),  # a first start was interrupted
        ("/srv/meta.properties", "/srv/notes.txt"),
        ("/srv/__cluster_metadata-0/00000000000000000000.log", "/srv/t-0/x"),
    ],
)
def test_a_new_an_empty_and_a_nodes_own_directory_are_taken(paths: tuple[str, ...]) -> None:
    check_place(disk_with(*paths), "/srv")
    check_place(disk_with(*paths), "/srv/")


OURS = Identity("cluster", 1, "directory")


def test_a_directory_that_nobody_formatted_becomes_that_of_a_new_cluster_or_is_refused() -> None:
    disk = disk_with("/srv/.lock")
    with pytest.raises(WrongDirectory, match=r"/srv is not formatted, .* semel storage format --cluster-id") as refused:
        identity_of(disk, "/srv", 7, Random(1), may_format=False)
    assert "\n" not in str(refused.value)
    assert read_identity(disk, "/srv") is None, "nothing was written"
    made = identity_of(disk, "/srv", 7, Random(1), may_format=True)
    assert made.node_id == 7
    assert made.cluster_id != made.directory_id
    assert read_identity(disk, "/srv") == identity_of(disk, "/srv", 7, Random(2), may_format=True) == made


def test_a_directory_of_another_node_is_refused_in_one_line() -> None:
    disk = disk_with("/srv/.lock")
    write_identity(disk, "/srv", OURS)
    with pytest.raises(WrongDirectory, match=r"/srv belongs to node 1, but node\.id is 2") as refused:
        identity_of(disk, "/srv", 2, Random(1), may_format=True)
    assert "\n" not in str(refused.value)


def test_a_directory_from_before_there_were_directory_ids_is_given_one_and_keeps_it() -> None:
    disk = disk_with("/srv/.lock")
    disk.replace_file_now("/srv/meta.properties", b"version=1\ncluster.id=cluster\nnode.id=1\n")
    given = identity_of(disk, "/srv", 1, Random(1), may_format=False)
    assert (given.cluster_id, given.node_id) == ("cluster", 1)
    assert given.directory_id
    assert identity_of(disk, "/srv", 1, Random(2), may_format=False) == given


@pytest.mark.parametrize(
    "text", [b"", b"cluster.id=\nnode.id=1\n", b"cluster.id=c\nnode.id=x\n", b"cluster.id=\xff\nnode.id=1\n"]
)
def test_damaged_properties_are_not_replaced(text: bytes) -> None:
    disk = disk_with("/srv/.lock")
    disk.replace_file_now("/srv/meta.properties", text)
    with pytest.raises(WrongDirectory, match="is damaged"):
        identity_of(disk, "/srv", 1, Random(1), may_format=True)
    assert disk.read_file("/srv/meta.properties") == text


def test_new_ids_have_kafkas_form() -> None:
    ids = {new_id(Random(seed)) for seed in range(2000)}
    assert len(ids) == 2000
    for one in ids:
        assert len(one) == 22
        assert not one.startswith("-")
        assert UUID(bytes=base64.urlsafe_b64decode(one + "==")).version == 4

"""Where a node may keep its data: in a directory of its own, and nowhere else."""

from __future__ import annotations

import pytest
from broker_harness import ROOT, Node, batch_of, simulated

from semel.broker.identity import WrongDirectory, check_place
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

"""What the Disk interface promises, on the real disk and on the simulated one."""

import asyncio
import os

import pytest

from semel.host.api import AlreadyLocked, FileRange
from semel.host.real_disk import RealDisk
from semel.sim.disk import SimDisk


@pytest.fixture(params=["real", "real with two descriptors", "simulated"])
def disk(request):
    disk = SimDisk(7) if request.param == "simulated" else RealDisk(2 if "two" in request.param else None)
    yield disk
    disk.close()


@pytest.fixture
def root(disk, tmp_path):
    path = "/data" if isinstance(disk, SimDisk) else str(tmp_path / "data")
    disk.make_dirs(path)
    return path


def test_parts_are_written_one_after_another_and_read_back(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(0, b"abc", bytearray(b"def"), memoryview(b"xghix")[1:4])
    file.write_at(2, b"CD")
    assert file.size() == 9
    assert file.read_at(0, 9) == b"abCDefghi"
    assert file.read_at(5, 100) == b"fghi"
    assert file.read_at(100, 5) == b""
    assert disk.read_file(f"{root}/a") == b"abCDefghi"


def test_thousands_of_parts_are_written_in_one_call(disk, root):
    file = disk.open(f"{root}/a", create=True)
    parts = [b"%05d" % number for number in range(3000)]
    file.write_at(0, *parts)
    assert file.read_at(0, 20_000) == b"".join(parts)


def test_a_write_beyond_the_end_leaves_zeros_before_it(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(4, b"x")
    assert file.read_at(0, 9) == b"\0\0\0\0x"


def test_read_into_fills_the_buffer_or_stops_at_the_end(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(0, b"0123456789")
    buffer = bytearray(4)
    assert file.read_into(3, buffer) == 4
    assert buffer == b"3456"
    assert file.read_into(8, memoryview(buffer)) == 2
    assert buffer == b"8956"


def test_truncate_shortens_and_lengthens(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(0, b"0123456789")
    file.truncate(4)
    file.truncate(6)
    assert file.read_at(0, 10) == b"0123\0\0"


def test_opening_says_whether_the_file_was_there(disk, root):
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/a")
    disk.open(f"{root}/a", create=True).close()
    with pytest.raises(FileExistsError):
        disk.open(f"{root}/a", create=True)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/missing/a", create=True)
    with pytest.raises(IsADirectoryError):
        disk.open(root)


def test_names_are_listed_in_order(disk, root):
    for name in ("b", "a", "c"):
        disk.open(f"{root}/{name}", create=True).close()
    disk.make_dirs(f"{root}/b2/deep")
    disk.make_dirs(f"{root}/b2/deep")
    assert disk.list_dir(root) == ["a", "b", "b2", "c"]
    assert disk.exists(f"{root}/b2/deep")
    assert disk.is_dir(f"{root}/b2")
    assert not disk.is_dir(f"{root}/a")
    assert not disk.exists(f"{root}/nothing")
    with pytest.raises(FileNotFoundError):
        disk.list_dir(f"{root}/nothing")


def test_a_file_keeps_its_number_when_it_is_renamed_and_others_have_others(disk, root):
    disk.replace_file_now(f"{root}/a", b"1")
    disk.replace_file_now(f"{root}/b", b"1")
    number = disk.file_number(f"{root}/a")
    assert number != disk.file_number(f"{root}/b")
    disk.rename(f"{root}/a", f"{root}/c")
    assert disk.file_number(f"{root}/c") == number
    with pytest.raises(FileNotFoundError):
        disk.file_number(f"{root}/a")


def test_a_renamed_file_keeps_working_under_its_new_path(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(0, b"one")
    disk.rename(f"{root}/a", f"{root}/b")
    for other in ("c", "d", "e"):  # pushes its descriptor out, where there are two
        disk.open(f"{root}/{other}", create=True).flush_now()
    file.flush_now()
    disk.open(f"{root}/a", create=True).write_at(0, b"another")
    assert file.path == f"{root}/b"
    assert file.read_at(0, 9) == b"one"


def test_files_move_with_their_renamed_directory(disk, root):
    disk.make_dirs(f"{root}/t/deep")
    disk.make_dirs(f"{root}/t2")
    file, deep = disk.open(f"{root}/t/a", create=True), disk.open(f"{root}/t/deep/b", create=True)
    unmoved = disk.open(f"{root}/t2/a", create=True)
    disk.rename(f"{root}/t", f"{root}/moved")
    assert (file.path, deep.path) == (f"{root}/moved/a", f"{root}/moved/deep/b")
    assert unmoved.path == f"{root}/t2/a"
    deep.write_at(0, b"x")
    assert disk.read_file(f"{root}/moved/deep/b") == b"x"


def test_a_removed_file_is_read_through_pins_alone(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(0, b"old")
    pinned = FileRange(file, 0, 3)
    disk.remove(f"{root}/a")
    disk.open(f"{root}/a", create=True).write_at(0, b"new")
    assert pinned.read() == b"old"
    pinned.release()
    pinned.release()
    with pytest.raises(FileNotFoundError):
        file.read_at(0, 3)
    with pytest.raises(FileNotFoundError):
        FileRange(file, 0, 3)


def test_a_replaced_file_never_shows_the_content_of_its_successor(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(0, b"old")
    disk.open(f"{root}/b", create=True).write_at(0, b"new")
    disk.rename(f"{root}/b", f"{root}/a")
    with pytest.raises(FileNotFoundError):
        file.read_at(0, 3)
    assert disk.open(f"{root}/a").read_at(0, 3) == b"new"


def test_closing_takes_effect_when_the_last_pin_is_gone(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(0, b"data")
    first, second = FileRange(file, 0, 2), FileRange(file, 2, 2)
    file.close()
    file.close()
    first.release()
    assert second.read() == b"ta"
    second.release()
    with pytest.raises(ValueError, match="closed"):
        file.read_at(0, 1)
    with pytest.raises(ValueError, match="not pinned"):
        file.unpin()


def test_a_tree_is_removed_with_everything_in_it(disk, root):
    disk.make_dirs(f"{root}/t/deep")
    file = disk.open(f"{root}/t/deep/a", create=True)
    file.write_at(0, b"kept by a pin")
    kept = FileRange(file, 0, 13)
    disk.remove_tree(f"{root}/t")
    assert disk.list_dir(root) == []
    assert kept.read() == b"kept by a pin"
    kept.release()


async def test_flushing_syncing_and_warming_return(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(0, b"x" * 100_000)
    await file.flush()
    await disk.sync_dir(root)
    await file.warm(0, 100_000)
    file.is_warm(0, 100_000)
    disk.sync_dir_now(root)
    with pytest.raises(FileNotFoundError):
        await disk.sync_dir(f"{root}/missing")


def test_a_directory_is_made_durable_with_those_above_it(disk, root, monkeypatch):
    disk.make_dirs(f"{root}/a/b")
    synced = []
    monkeypatch.setattr(disk, "sync_dir_now", synced.append)
    disk.sync_parents_now(f"{root}/a/b")
    assert synced[:2] == [f"{root}/a", root]
    assert len(set(synced)) == len(synced)


async def test_what_follows_a_flush_is_called_once_and_not_from_within_the_call(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(0, b"x")
    told, all_told = [], asyncio.Event()

    def tell(failure):
        told.append(failure)
        if len(told) == 3:
            all_told.set()

    for _ in range(3):
        file.flush_then(tell)
    assert told == []
    await asyncio.wait_for(all_told.wait(), 10)
    await file.flush()
    assert told == [None] * 3


async def test_many_flushes_of_one_file_at_once_all_return(disk, root):
    file = disk.open(f"{root}/a", create=True)
    file.write_at(0, b"x")
    await asyncio.gather(*(file.flush() for _ in range(10)))


async def test_replacing_a_file_leaves_nothing_else_behind(disk, root):
    await disk.replace_file(f"{root}/a", b"one")
    assert disk.read_file(f"{root}/a") == b"one"
    disk.replace_file_now(f"{root}/a", b"two")
    await disk.replace_file(f"{root}/a", b"three")
    assert disk.read_file(f"{root}/a") == b"three"
    assert disk.list_dir(root) == ["a"]


async def test_a_temporary_left_by_a_crash_does_not_stop_a_replacement(disk, root):
    disk.open(f"{root}/a.tmp", create=True).write_at(0, b"long rubbish of a crash")
    await disk.replace_file(f"{root}/a", b"one")
    assert disk.read_file(f"{root}/a") == b"one"
    assert disk.list_dir(root) == ["a"]


async def test_of_overlapping_replacements_the_last_call_wins(disk, root):
    slow = [asyncio.create_task(disk.replace_file(f"{root}/a", b"%d" % turn)) for turn in range(5)]
    await asyncio.sleep(0)
    disk.replace_file_now(f"{root}/a", b"last")
    await asyncio.gather(*slow)
    assert disk.read_file(f"{root}/a") == b"last"
    assert disk.list_dir(root) == ["a"]


async def test_a_cancelled_replacement_leaves_the_old_content(disk, root):
    await disk.replace_file(f"{root}/a", b"old")
    task = asyncio.create_task(disk.replace_file(f"{root}/a", b"new"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert disk.read_file(f"{root}/a") == b"old"
    assert disk.list_dir(root) == ["a"]


def test_a_lock_is_held_once_and_names_its_holder(disk, root):
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(AlreadyLocked, match="is locked by process") as caught:
        disk.lock(f"{root}/.lock")
    assert caught.value.holder_pid == (1 if isinstance(disk, SimDisk) else os.getpid())
    lock.close()
    lock.close()
    disk.lock(f"{root}/.lock").close()


def test_sizes_of_the_disk_are_told(disk, root):
    assert 0 < disk.free_bytes(root) <= disk.total_bytes(root)


def test_a_file_range_cannot_be_negative(disk, root):
    file = disk.open(f"{root}/a", create=True)
    with pytest.raises(ValueError, match="cannot start"):
        FileRange(file, -1, 5)
    assert len(FileRange(file, 0, 5)) == 5

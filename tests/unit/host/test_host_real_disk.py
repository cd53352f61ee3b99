"""What is special to the real disk: descriptors, errors of the system, threads, locks between processes."""

import asyncio
import errno
import os
import select
import stat
import subprocess
import sys
import time

import pytest

from semel.host import real_disk
from semel.host.api import AlreadyLocked, FileRange
from semel.host.disk_threads import NativeThreads, PythonThreads
from semel.host.real_disk import RealDisk


@pytest.fixture
def disk():
    disk = RealDisk()
    yield disk
    disk.close()


@pytest.fixture
def small_disk():
    disk = RealDisk(max_open_files=3)
    yield disk
    disk.close()


def new_files(disk, tmp_path, count):
    files = [disk.open(str(tmp_path / f"f{number}"), create=True) for number in range(count)]
    for number, file in enumerate(files):
        file.write_at(0, b"%d" % number)
    return files


def break_descriptor(file):
    """Put a pipe where the file was: fdatasync on it fails with EINVAL."""
    reader, writer = os.pipe()
    os.dup2(writer, file.fd)
    os.close(reader)
    os.close(writer)


def test_short_writes_are_continued(disk, tmp_path, monkeypatch):
    whole_pwrite, whole_pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: whole_pwrite(fd, bytes(data)[:2], position))
    monkeypatch.setattr(
        os, "pwritev", lambda fd, parts, position: whole_pwritev(fd, [b"".join(map(bytes, parts))[:3]], position)
    )
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write_at(0, b"0123456789")
    file.write_at(10, b"ab", b"", b"cdefg", b"h")
    assert file.read_at(0, 30) == b"0123456789abcdefgh"


def test_short_reads_are_continued(disk, tmp_path, monkeypatch):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write_at(0, b"0123456789")
    whole_pread, whole_preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, length, position: whole_pread(fd, min(length, 3), position))
    monkeypatch.setattr(
        os, "preadv", lambda fd, buffers, position: whole_preadv(fd, [memoryview(buffers[0])[:3]], position)
    )
    buffer = bytearray(8)
    assert file.read_at(1, 20) == b"123456789"
    assert file.read_into(1, buffer) == 8
    assert buffer == b"12345678"


def test_errors_of_the_system_pass_through(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    with pytest.raises(OSError, match="Invalid argument"):
        file.write_at(-1, b"x")
    with pytest.raises(NotADirectoryError):
        disk.list_dir(str(tmp_path / "a"))


def test_new_files_and_directories_are_for_their_owner_alone(disk, tmp_path):
    before = os.umask(0)
    try:
        disk.open(str(tmp_path / "a"), create=True)
        disk.make_dirs(str(tmp_path / "d"))
        lock = disk.lock(str(tmp_path / "lock"))
        lock.close()
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("a", "d", "lock")}
    assert modes == {"a": 0o600, "d": 0o700, "lock": 0o600}


def test_descriptors_stay_below_the_limit_and_come_back(small_disk, tmp_path):
    files = new_files(small_disk, tmp_path, 20)
    assert small_disk.open_files <= 3
    assert [file.read_at(0, 9) for file in files] == [b"%d" % number for number in range(20)]
    assert small_disk.open_files <= 3
    for file in files:
        file.close()
    assert small_disk.open_files == 0


def test_the_least_recently_used_descriptor_goes_first(small_disk, tmp_path):
    a, b, c = new_files(small_disk, tmp_path, 3)
    for file in (a, b, c):
        file.flush_now()
    a.size()
    small_disk.open(str(tmp_path / "new"), create=True)
    assert (a.fd >= 0, b.fd >= 0, c.fd >= 0) == (True, False, True)


def test_a_pinned_file_is_never_closed_for_room(small_disk, tmp_path):
    files = new_files(small_disk, tmp_path, 3)
    ranges = [FileRange(file, 0, 1) for file in files]
    fds = [file.fd for file in files]
    for number in range(10):
        small_disk.open(str(tmp_path / f"n{number}"), create=True)
    assert [file.fd for file in files] == fds
    for part in ranges:
        part.release()


async def test_an_unflushed_file_is_flushed_before_its_descriptor_is_closed(small_disk, tmp_path):
    files = new_files(small_disk, tmp_path, 8)
    assert small_disk.open_files == 8  # beyond the limit: all hold unflushed writes, and the loop must not wait
    while small_disk.open_files > 3:
        await asyncio.sleep(0)
        small_disk.make_room()
    assert all(not file.unflushed for file in files if file.fd < 0)


async def test_an_error_of_a_flush_made_for_room_is_kept_for_the_next_flush(small_disk, tmp_path):
    files = new_files(small_disk, tmp_path, 3)
    break_descriptor(files[0])
    small_disk.open(str(tmp_path / "new"), create=True)
    await asyncio.gather(*small_disk._background_flushes)
    assert files[0].flush_error is not None
    with pytest.raises(OSError, match="Invalid"):
        await files[0].flush()


def test_running_out_of_descriptors_makes_room(disk, tmp_path, monkeypatch):
    file = disk.open(str(tmp_path / "a"), create=True)
    real_open, refusals = os.open, [errno.EMFILE]

    def refusing_open(*args):
        if refusals:
            raise OSError(refusals.pop(), "too many open files")
        return real_open(*args)

    monkeypatch.setattr(real_disk.os, "open", refusing_open)
    disk.open(str(tmp_path / "b"), create=True)
    assert file.fd == -1


async def test_a_failed_flush_is_never_retried(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write_at(0, b"x")
    healthy = os.dup(file.fd)
    break_descriptor(file)
    with pytest.raises(OSError, match="Invalid"):
        await file.flush()
    os.dup2(healthy, file.fd)  # the next fdatasync would succeed, and lie
    os.close(healthy)
    with pytest.raises(OSError, match="Invalid"):
        await file.flush()
    with pytest.raises(OSError, match="Invalid"):
        file.flush_now()
    assert file.pins == 0


async def test_the_failure_of_a_cancelled_flush_is_not_forgotten(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    break_descriptor(file)
    task = asyncio.create_task(file.flush())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(OSError, match="Invalid"):
        await file.flush()
    assert file.pins == 0


async def test_flushes_that_wait_for_a_failing_one_fail_too(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    break_descriptor(file)
    outcomes = await asyncio.gather(*(file.flush() for _ in range(4)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OSError] * 4


async def test_what_follows_a_flush_is_told_of_its_failure_and_of_an_earlier_one(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    break_descriptor(file)
    told = []
    file.flush_then(told.append)
    assert told == [], "from the loop, not from within the call"
    with pytest.raises(OSError, match="Invalid"):
        await file.flush()
    file.flush_then(told.append)
    assert len(told) == 1
    await asyncio.sleep(0)
    assert told == [file.flush_error] * 2
    assert file.pins == 0


async def test_a_file_removed_during_its_flush_is_flushed_once_more_for_who_has_asked_meanwhile(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write_at(0, b"x")
    flushes = [asyncio.create_task(file.flush()) for _ in range(2)]
    await asyncio.sleep(0)
    disk.remove(file.path)
    await asyncio.gather(*flushes)
    assert file.fd == -1


async def test_flushes_of_one_file_never_run_side_by_side_and_those_that_wait_share_one(disk, tmp_path, monkeypatch):
    file = disk.open(str(tmp_path / "a"), create=True)
    under_way, most, begun = 0, 0, 0
    submit, flush_done = disk.submit, type(file).flush_done

    def counted_submit(*args):
        nonlocal under_way, most, begun
        begun += 1
        under_way += 1
        most = max(most, under_way)
        return submit(*args)

    def counted_done(file, error):
        nonlocal under_way
        under_way -= 1
        flush_done(file, error)

    monkeypatch.setattr(disk, "submit", counted_submit)
    monkeypatch.setattr(type(file), "flush_done", counted_done)
    await asyncio.gather(*(file.flush() for _ in range(8)))
    assert (most, under_way, begun) == (1, 0, 2)


async def test_a_file_closed_during_its_flush_lives_until_the_flush_ends(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write_at(0, b"x")
    flushing = asyncio.create_task(file.flush())
    await asyncio.sleep(0)
    file.close()
    assert file.fd >= 0
    await flushing
    assert file.fd == -1


@pytest.mark.parametrize("threads_class", [NativeThreads, PythonThreads])
async def test_a_flush_that_is_wanted_when_the_disk_is_closed_is_told_so_and_the_one_that_ran_is_not(
    tmp_path, monkeypatch, threads_class
):
    monkeypatch.setattr(real_disk, "start_disk_threads", threads_class)
    disk = RealDisk()
    (file,) = new_files(disk, tmp_path, 1)
    ran, wanted = [], []
    file.flush_then(ran.append)
    file.flush_then(wanted.append)
    wait_until_ended(disk._threads)
    disk.close()
    assert ran == [None]
    assert [error.errno for error in wanted] == [errno.ECANCELED]
    assert file.fd == -1


def wait_until_ended(threads):
    """A job is done, and nobody has been told yet: the loop does not run meanwhile."""
    if isinstance(threads, NativeThreads):
        assert select.select([threads._fd], [], [], 10)[0]
    else:
        while not threads._ended:
            time.sleep(0.001)


async def test_a_large_file_is_freed_by_a_thread(disk, tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(bytes(2 << 20))
    kinds = []
    threads = disk._running_threads()
    submit = threads.submit
    monkeypatch.setattr(threads, "submit", lambda kind, *args: (kinds.append(kind), submit(kind, *args))[1])
    disk.remove(str(tmp_path / "a"))
    assert kinds == [real_disk.JobKind.CLOSE]
    assert not disk.exists(str(tmp_path / "a"))
    with pytest.raises(FileNotFoundError):
        disk.remove(str(tmp_path / "a"))


def test_a_disk_serves_one_loop_after_another(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    for _ in range(3):
        file.write_at(0, b"x")
        asyncio.run(file.flush())


def test_a_disk_can_be_closed_from_outside_its_loop(tmp_path):
    disk = RealDisk()
    asyncio.run(disk.replace_file(str(tmp_path / "a"), b"x"))
    file = disk.open(str(tmp_path / "a"))
    disk.close()
    disk.close()
    assert file.fd == -1


async def test_a_replacement_that_fails_leaves_the_old_content_and_no_temporary(disk, tmp_path, monkeypatch):
    path = str(tmp_path / "a")
    await disk.replace_file(path, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="no space"):
        await disk.replace_file(path, b"new")
    assert disk.read_file(path) == b"old"
    assert disk.list_dir(str(tmp_path)) == ["a"]


async def test_a_replacement_flushes_before_it_renames_and_syncs_after(disk, tmp_path, monkeypatch):
    steps = []
    threads = disk._running_threads()
    submit, rename = threads.submit, os.rename
    monkeypatch.setattr(threads, "submit", lambda kind, *args: (steps.append(kind.name), submit(kind, *args))[1])
    monkeypatch.setattr(os, "rename", lambda *args: (steps.append("rename"), rename(*args)))
    await disk.replace_file(str(tmp_path / "a"), b"x")
    assert steps == ["FDATASYNC", "rename", "FSYNC"]


HOLD_LOCK = """
import sys
from semel.host.real_disk import RealDisk
lock = RealDisk().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_of_another_process_names_it_and_ends_with_it(disk, tmp_path):
    path = str(tmp_path / ".lock")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(AlreadyLocked, match=f"locked by process {holder.pid}") as caught:
        disk.lock(path)
    assert (caught.value.path, caught.value.holder_pid) == (path, holder.pid)
    holder.kill()
    holder.communicate()
    disk.lock(path).close()


async def test_a_range_just_written_is_warm(disk, tmp_path):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write_at(0, b"x" * 300_000)
    if not file.is_warm(0, 1):
        pytest.skip("this file system cannot tell what is cached")
    assert file.is_warm(0, 300_000)
    await file.warm(0, 300_000)


def test_a_range_that_would_block_is_not_warm(disk, tmp_path, monkeypatch):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write_at(0, b"x" * 300_000)
    real_preadv = os.preadv

    def blocks_at_the_end(fd, buffers, position, flags=0):
        if flags and position >= 299_999:
            raise BlockingIOError(errno.EAGAIN, "would block")
        return real_preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", blocks_at_the_end)
    assert file.is_warm(0, 200_000)
    assert not file.is_warm(0, 300_000)


def test_directories_above_one_that_is_somebody_elses_are_left_alone(disk, tmp_path, monkeypatch):
    disk.make_dirs(str(tmp_path / "closed" / "a" / "b"))
    tried = []

    def sync(path):
        tried.append(path)
        if path == str(tmp_path / "closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(disk, "sync_dir_now", sync)
    disk.sync_parents_now(str(tmp_path / "closed" / "a" / "b"))
    assert tried == [str(tmp_path / "closed" / "a"), str(tmp_path / "closed")]


def test_directories_of_another_file_system_are_left_alone(disk, tmp_path, monkeypatch):
    disk.make_dirs(str(tmp_path / "mounted" / "a" / "b"))
    device_of = os.stat
    tried = []

    def stat_of(path, **more):
        found = list(device_of(path, **more))
        found[stat.ST_DEV] += str(path) == str(tmp_path)
        return os.stat_result(found)

    monkeypatch.setattr(disk, "sync_dir_now", tried.append)
    monkeypatch.setattr(real_disk.os, "stat", stat_of)
    disk.sync_parents_now(str(tmp_path / "mounted" / "a" / "b"))
    assert tried == [str(tmp_path / "mounted" / "a"), str(tmp_path / "mounted")]


def test_the_directories_above_are_those_behind_a_symbolic_link(disk, tmp_path, monkeypatch):
    disk.make_dirs(str(tmp_path / "real" / "a"))
    os.symlink(tmp_path / "real" / "a", tmp_path / "link")
    tried = []
    monkeypatch.setattr(disk, "sync_dir_now", tried.append)
    disk.sync_parents_now(str(tmp_path / "link"))
    assert tried[0] == str(tmp_path / "real")

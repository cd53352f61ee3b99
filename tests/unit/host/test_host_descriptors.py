"""The share of the disk: it stays within it, and gives one of its own when there is none."""

import asyncio
import errno
import os
import resource

import pytest

from semel.host import descriptors, real_disk
from semel.host.api import FileRange
from semel.host.descriptors import is_short, shares
from semel.host.real_disk import RealDisk


@pytest.fixture
def disk():
    disk = RealDisk(max_open_files=6, most_open_files=8)
    yield disk
    disk.close()


@pytest.mark.parametrize("limit", [64, 256, 1024, 20_000, 1_000_000])
def test_what_is_reserved_is_in_nobodys_share(monkeypatch, limit):
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: (limit, limit))
    monkeypatch.setattr(descriptors, "_open_now", lambda: 12)
    given = shares()
    assert given.files + given.connections + 12 + 20 <= limit
    assert given.files + given.connections + 12 + 30 >= limit
    assert min(given.files, given.connections) >= 8


def test_without_a_limit_there_is_none_for_connections(monkeypatch):
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert shares().connections > 1 << 40


async def test_the_hard_limit_holds_also_for_files_that_are_not_flushed(disk, tmp_path):
    files = []
    for number in range(50):
        file = disk.open(str(tmp_path / f"f{number}"), create=True)
        file.write_at(0, b"%d" % number)
        files.append(file)
        assert disk.open_files <= 8
    await asyncio.gather(*(file.flush() for file in files))
    assert disk.open_files <= 8
    assert [file.read_at(0, 9) for file in files] == [b"%d" % number for number in range(50)]


async def test_readers_leave_files_that_can_be_closed_for_those_who_write(disk, tmp_path):
    files = [disk.open(str(tmp_path / f"f{number}"), create=True) for number in range(20)]
    ranges = [FileRange(file, 0, 0) for file in files[:6]]
    with pytest.raises(OSError) as refused:
        FileRange(files[7], 0, 0)
    assert is_short(refused.value)
    again = FileRange(files[0], 0, 0)
    files[9].write_at(0, b"x")
    await files[9].flush()
    assert disk.open_files <= 8
    for part in [*ranges, again]:
        part.release()
    FileRange(files[7], 0, 0).release()
    assert disk.pinned_files == 0


async def test_directories_that_are_synchronised_at_once_stay_within_the_share(disk, tmp_path):
    for number in range(100):
        (tmp_path / f"d{number}").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    syncs = [asyncio.ensure_future(disk.sync_dir(str(tmp_path / f"d{number}"))) for number in range(100)]
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) - before <= 8
    await asyncio.gather(*syncs)


@pytest.mark.parametrize("what", ["read_file", "list_dir", "lock", "sync_dir_now", "replace_file_now"])
def test_whatever_finds_no_descriptor_gets_one_of_a_file(disk, tmp_path, monkeypatch, what):
    files = [disk.open(str(tmp_path / f"f{number}"), create=True) for number in range(3)]
    (tmp_path / "there").write_bytes(b"x")
    calls = {
        "read_file": lambda: disk.read_file(str(tmp_path / "there")),
        "list_dir": lambda: disk.list_dir(str(tmp_path)),
        "lock": lambda: disk.lock(str(tmp_path / "lock")).close(),
        "sync_dir_now": lambda: disk.sync_dir_now(str(tmp_path)),
        "replace_file_now": lambda: disk.replace_file_now(str(tmp_path / "there"), b"y"),
    }
    refusals = [errno.EMFILE]

    def refusing(call):
        def refuse_once(*args, **kwargs):
            if refusals:
                raise OSError(refusals.pop(), "too many open files")
            return call(*args, **kwargs)

        return refuse_once

    monkeypatch.setattr(real_disk.os, "open", refusing(os.open))
    monkeypatch.setattr(real_disk.os, "listdir", refusing(os.listdir))
    monkeypatch.setattr("builtins.open", refusing(open))
    calls[what]()
    assert not refusals
    assert sum(file.fd < 0 for file in files) == 1


async def test_a_flush_that_finds_no_descriptor_notes_nothing_and_can_be_asked_for_again(disk, tmp_path, monkeypatch):
    file = disk.open(str(tmp_path / "a"), create=True)
    file.write_at(0, b"x")
    file.flush_now()
    disk.close_descriptor(file)

    def refuse(*_):
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(real_disk.os, "open", refuse)
        with pytest.raises(OSError, match="too many"):
            await file.flush()
    await file.flush()
    assert file.flush_error is None

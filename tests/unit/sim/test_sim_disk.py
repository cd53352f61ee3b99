"""The simulated disk's faults: where it dies, what it refuses, what it forgets."""

import asyncio
import errno
import random

import pytest

from semel.host.api import FileRange
from semel.sim.disk import PowerLost, SimDisk
from semel.sim.loop import run

SEEDS = range(200)


def outcomes(make_disk, look):
    """Everything that `look` sees after a power loss, over many seeds."""
    return {look(make_disk().after_power_loss(seed)) for seed in SEEDS}


def disk_with(data, *, synced_name=True, flushed=True):
    disk = SimDisk(1)
    file = disk.open("/a", create=True)
    if synced_name:
        disk.sync_dir_now("/")
    file.write_at(0, data)
    if flushed:
        file.flush_now()
    return disk


def read_or_none(path):
    return lambda disk: disk.read_file(path) if disk.exists(path) else None


def test_flushed_data_under_a_synced_name_always_survives():
    assert outcomes(lambda: disk_with(b"x" * 2000), read_or_none("/a")) == {b"x" * 2000}


def test_unflushed_data_survives_whole_torn_as_zeros_or_not_at_all():
    seen = outcomes(lambda: disk_with(b"x" * 1500, flushed=False), read_or_none("/a"))
    assert {b"", b"x" * 1500, bytes(1500)} <= seen
    assert b"x" * 1024 + bytes(476) in seen
    assert bytes(512) + b"x" * 512 + bytes(476) in seen  # out of order
    sectors = {data[i : i + 512] for data in seen for i in range(0, len(data), 512)}
    assert sectors == {b"x" * 512, bytes(512), b"x" * 476, bytes(476)}


def test_a_flushed_file_whose_name_was_not_synced_may_vanish():
    assert outcomes(lambda: disk_with(b"x", synced_name=False), read_or_none("/a")) == {None, b"x"}


def test_an_overwritten_sector_is_old_or_new_and_never_a_mix():
    def make():
        disk = disk_with(b"o" * 1024)
        file = disk.open("/a")
        file.write_at(100, b"1" * 100)
        file.write_at(600, b"2" * 10)
        file.write_at(150, b"3" * 100)
        return disk

    first = {data[:512] for data in outcomes(make, read_or_none("/a"))}
    one = b"o" * 100 + b"1" * 100 + b"o" * 312
    three = b"o" * 100 + b"1" * 50 + b"3" * 100 + b"o" * 262
    assert first == {b"o" * 512, one, three}


def test_a_truncation_that_was_not_flushed_may_be_undone():
    def make():
        disk = disk_with(b"o" * 1000)
        disk.open("/a").truncate(10)
        return disk

    seen = outcomes(make, read_or_none("/a"))
    assert {b"o" * 10, b"o" * 1000} <= seen
    assert {len(data) for data in seen} == {10, 1000}


def test_a_flushed_truncation_stays():
    def make():
        disk = disk_with(b"o" * 1000)
        file = disk.open("/a")
        file.truncate(10)
        file.flush_now()
        return disk

    assert outcomes(make, read_or_none("/a")) == {b"o" * 10}


def test_removals_and_renames_hold_only_after_a_sync_of_the_directory():
    def removed():
        disk = disk_with(b"x")
        disk.remove("/a")
        return disk

    def renamed():
        disk = disk_with(b"x")
        disk.rename("/a", "/b")
        return disk

    def names(disk):
        return tuple(disk.list_dir("/"))

    assert outcomes(removed, names) == {("a",), ()}
    assert outcomes(renamed, names) == {("a",), ("b",)}

    def synced(make):
        disk = make()
        disk.sync_dir_now("/")
        return disk

    assert outcomes(lambda: synced(removed), names) == {()}
    assert outcomes(lambda: synced(renamed), names) == {("b",)}


def test_a_replacement_without_a_flush_may_leave_an_empty_file():
    def make():
        disk = disk_with(b"old")
        file = disk.open("/a.tmp", create=True)
        file.write_at(0, b"new")
        disk.rename("/a.tmp", "/a")
        disk.sync_dir_now("/")
        return disk

    assert {b"", b"new"} <= outcomes(make, read_or_none("/a"))


def test_replace_file_leaves_the_old_or_the_new_content_wherever_it_is_struck():
    async def strike(call, when, seed):
        disk = disk_with(b"old" * 500)
        before = disk.calls
        disk.crash_at(before + call, when)
        try:
            await disk.replace_file("/a", b"new" * 700)
            acknowledged = True
        except PowerLost:
            acknowledged = False
        return acknowledged, disk.after_power_loss(seed).read_file("/a"), disk.calls - before

    async def main():
        seen = set()
        for seed in range(40):
            for call in range(1, 7):
                for when in ("before", "during", "after"):
                    acknowledged, content, _ = await strike(call, when, seed)
                    seen.add((acknowledged, content))
        return seen

    assert run(main()) == {(True, b"new" * 700), (False, b"new" * 700), (False, b"old" * 500)}


def test_a_directory_lost_with_its_parent_takes_its_files_along():
    def make(sync_parent):
        disk = SimDisk(1)
        disk.make_dirs("/data/t")
        disk.sync_dir_now("/")
        if sync_parent:
            disk.sync_dir_now("/data")
        disk.open("/data/t/a", create=True).flush_now()
        disk.sync_dir_now("/data/t")
        return disk

    assert outcomes(lambda: make(True), lambda disk: disk.exists("/data/t/a")) == {True}
    assert outcomes(lambda: make(False), lambda disk: disk.exists("/data/t/a")) == {True, False}


def test_syncing_one_directory_does_not_bring_back_what_it_overruled():
    def make():
        disk = SimDisk(1)
        for name in ("/x", "/y"):
            disk.make_dirs(name)
        disk.sync_dir_now("/")
        disk.open("/y/f", create=True).write_at(0, b"first")
        moved = disk.open("/x/f", create=True)
        moved.write_at(0, b"second")
        moved.flush_now()
        disk.rename("/x/f", "/y/f")
        disk.sync_dir_now("/x")
        return disk

    assert outcomes(make, read_or_none("/y/f")) == {b"second"}
    assert outcomes(make, read_or_none("/x/f")) == {None}


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_dead_disk_answers_nothing(when):
    lost = []
    disk = SimDisk(1, on_power_lost=lambda: lost.append(1))
    file = disk.open("/a", create=True)
    disk.crash_at(2, when)
    with pytest.raises(PowerLost):
        file.write_at(0, b"x" * 100)
    calls = [
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, b"x"),
        lambda: file.size(),
        lambda: file.flush_now(),
        lambda: file.truncate(0),
        lambda: FileRange(file, 0, 1),
        lambda: disk.open("/b", create=True),
        lambda: disk.read_file("/a"),
        lambda: disk.list_dir("/"),
        lambda: disk.exists("/a"),
        lambda: disk.rename("/a", "/b"),
        lambda: disk.remove("/a"),
        lambda: disk.make_dirs("/d"),
        lambda: disk.sync_dir_now("/"),
        lambda: disk.replace_file_now("/a", b""),
        lambda: disk.lock("/lock"),
        lambda: run(file.flush()),
        lambda: run(disk.sync_dir("/")),
        lambda: run(file.warm(0, 1)),
    ]
    for call in calls:
        with pytest.raises(PowerLost):
            call()
    assert lost == [1]
    assert disk.calls == 2


def test_dying_before_during_and_after_a_write_leaves_none_some_or_all_of_it():
    def written(when, seed=1):
        disk = SimDisk(seed)
        file = disk.open("/a", create=True)
        disk.crash_at(2, when)
        with pytest.raises(PowerLost):
            file.write_at(0, b"x" * 100)
        return len(disk.after_kill().read_file("/a"))

    assert written("before") == 0
    assert written("after") == 100
    partly = {written("during", seed) for seed in range(300)}
    assert {0, 100} < partly | {0, 100}
    assert len(partly) > 50


CHANGES = {
    "create": (lambda disk: disk.open("/d/new", create=True), lambda disk: disk.exists("/d/new")),
    "mkdir": (lambda disk: disk.make_dirs("/d/new"), lambda disk: disk.is_dir("/d/new")),
    "rename": (lambda disk: disk.rename("/d/a", "/d/b"), lambda disk: disk.list_dir("/d") == ["b"]),
    "remove": (lambda disk: disk.remove("/d/a"), lambda disk: disk.list_dir("/d") == []),
    "truncate": (lambda disk: disk.open("/d/a").truncate(5), lambda disk: len(disk.read_file("/d/a")) == 5),
    "flush": (lambda disk: disk.open("/d/a").flush_now(), None),
    "sync_dir": (lambda disk: disk.sync_dir_now("/d"), None),
    "awaited flush": (lambda disk: run(disk.open("/d/a").flush()), None),
    "awaited sync_dir": (lambda disk: run(disk.sync_dir("/d")), None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_was_died_in_was_made_or_not(change):
    perform, was_made = CHANGES[change]

    def die_in_it(when, seed):
        disk = SimDisk(seed)
        disk.make_dirs("/d")
        disk.sync_dir_now("/")
        disk.open("/d/a", create=True).write_at(0, b"x" * 10)
        disk.crash_at(disk.calls + 1, when)
        with pytest.raises(PowerLost):
            perform(disk)
        if was_made is not None:
            return was_made(disk.after_kill())
        survivor = disk.after_power_loss()
        return (
            not survivor.exists("/d/a") if "sync" in change else survivor.list_dir("/d") and survivor.read_file("/d/a")
        )

    if was_made is not None:
        assert {die_in_it("before", seed) for seed in range(20)} == {False}
        assert {die_in_it("after", seed) for seed in range(20)} == {True}
        assert len({die_in_it("during", seed) for seed in range(20)}) == 2
    else:  # what it made durable is durable only if it was done
        assert len({repr(die_in_it("before", seed)) for seed in range(60)}) > 1
        lost = {repr(die_in_it("after", seed)) for seed in range(60)}
        assert lost == {"False"} if "sync" in change else lost <= {repr(b"x" * 10), "[]"}


def test_a_flush_covers_only_what_was_written_before_it():
    async def main(seed):
        disk = SimDisk(seed, flush_latency_ms=(5, 5))
        file = disk.open("/a", create=True)
        disk.sync_dir_now("/")
        file.write_at(0, b"1" * 600)
        flushing = asyncio.create_task(file.flush())
        await asyncio.sleep(0.001)
        file.write_at(600, b"2" * 600)
        file.write_at(0, b"3")
        await flushing
        return disk.after_power_loss(seed).read_file("/a")

    seen = {run(main(seed)) for seed in SEEDS}
    assert all(data[1:512] == b"1" * 511 and data[512:600] == b"1" * 88 for data in seen)
    assert {b"1" * 600, b"3" + b"1" * 599 + b"2" * 600} <= seen


def test_power_lost_during_a_flush_is_told_to_who_waits_for_it():
    async def main():
        disk = SimDisk(1, flush_latency_ms=(5, 5))
        file = disk.open("/a", create=True)
        file.write_at(0, b"x")
        flushing = asyncio.create_task(file.flush())
        await asyncio.sleep(0.001)
        disk.lose_power()
        with pytest.raises(PowerLost):
            await flushing

    run(main())


def test_a_kill_keeps_the_page_cache_but_does_not_flush_it():
    disk = disk_with(b"x" * 600, flushed=False)
    second = disk.after_kill()
    assert second.read_file("/a") == b"x" * 600
    with pytest.raises(PowerLost):
        disk.exists("/a")
    assert b"" in {disk_with(b"x" * 600, flushed=False).after_kill().after_power_loss(s).read_file("/a") for s in SEEDS}
    second.open("/a").flush_now()
    assert second.after_power_loss(3).read_file("/a") == b"x" * 600


def test_a_failed_flush_is_final_and_its_data_is_never_durable():
    def make():
        disk = disk_with(b"x" * 100, flushed=False)
        file = disk.open("/a")
        disk.fail_at("flush")
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output error"):
                file.flush_now()
        disk.open("/a").flush_now()  # a second try by another way: says yes, does nothing
        return disk

    assert b"" in outcomes(make, read_or_none("/a"))


def test_errors_strike_the_chosen_call_of_a_kind():
    disk = SimDisk(1)
    file = disk.open("/a", create=True)
    file.write_at(0, b"x" * 50)
    disk.fail_at("write", 2, errno.EDQUOT)
    disk.fail_at("read", 1, times=2)
    disk.fail_at("sync_dir")
    disk.fail_at("rename")
    file.write_at(50, b"y")
    with pytest.raises(OSError, match="quota") as caught:
        file.write_at(51, b"z" * 100)
    assert caught.value.errno == errno.EDQUOT
    assert 51 <= file.size() <= 151
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.read_at(0, 1)
    assert file.read_at(0, 1) == b"x"
    with pytest.raises(OSError, match="Input/output"):
        run(disk.sync_dir("/"))
    with pytest.raises(OSError, match="Input/output"):
        disk.rename("/a", "/b")
    assert disk.list_dir("/") == ["a"]


def test_a_full_disk_takes_what_fits_and_gives_room_back():
    disk = SimDisk(1, capacity_bytes=1000)
    file = disk.open("/a", create=True)
    file.write_at(0, b"x" * 900)
    assert disk.free_bytes("/") == 100
    with pytest.raises(OSError, match="no space") as caught:
        file.write_at(850, b"y" * 200)
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 1000
    file.truncate(900)
    file.write_at(0, b"z" * 900)  # nothing grows
    other = disk.open("/b", create=True)
    other.write_at(0, b"x" * 100)
    disk.remove("/a")
    assert disk.free_bytes("/") == 900
    disk.fill_after(10)
    with pytest.raises(OSError, match="no space"):
        other.write_at(100, b"x" * 11)


def test_a_flipped_bit_stays_flipped():
    disk = disk_with(b"\x00\x00")
    disk.flip_bit("/a", 1, 3)
    assert disk.read_file("/a") == b"\x00\x08"
    assert disk.after_power_loss(1).read_file("/a") == b"\x00\x08"


def test_calls_are_counted_and_logged():
    disk = disk_with(b"xyz")
    disk.read_file("/a")
    assert [(call.number, call.kind, call.path, call.detail) for call in disk.log] == [
        (1, "create", "/a", ""),
        (2, "sync_dir", "/", ""),
        (3, "write", "/a", "3 at 0"),
        (4, "flush", "/a", ""),
    ]


def test_impossible_renames_are_refused():
    disk = SimDisk(1)
    disk.make_dirs("/d/e")
    disk.open("/f", create=True)
    for old, new in (("/d", "/d/e/x"), ("/f", "/d"), ("/d", "/f"), ("/d/e", "/d")):
        with pytest.raises(OSError, match=r"."):
            disk.rename(old, new)
    with pytest.raises(FileNotFoundError):
        disk.rename("/nothing", "/x")
    disk.rename("/f", "/f")
    assert disk.list_dir("/") == ["d", "f"]


def test_cold_ranges_are_drawn():
    disk = SimDisk(1, cold_chance=0.5)
    file = disk.open("/a", create=True)
    assert {file.is_warm(0, 1) for _ in range(50)} == {True, False}


def test_chance_of_the_disk_is_its_own():
    random.seed(1)
    expected = random.random()
    random.seed(1)
    disk_with(b"x" * 5000, flushed=False).after_power_loss()
    assert random.random() == expected

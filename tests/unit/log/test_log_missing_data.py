"""Files that are removed, cut, altered or swapped between two runs.

What can be made anew from the log is, and told once; a log of which something is missing is not served."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from damaged_log import DIRECTORY, SETTINGS, Damaged, damageable, known_of, start
from log_samples import batch, offsets_from, settings, write
from test_log_store import ROOT, Stand, simulated

from semel.log.errors import CorruptSegment, DataMissing
from semel.log.log import Cold
from semel.sim.disk import PowerLost, SimDisk

Harm = Callable[[Damaged], object]


def both(how: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(how, [True, False], ids=["stopped", "killed"])


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Ours: a foreign client of another test may still look for its broker."""
    ours = [record for record in caplog.records if record.name.startswith("semel")]
    return [record.getMessage() for record in ours if record.levelname in ("ERROR", "WARNING")]


def truncate(disk: SimDisk, path: str, size: int) -> None:
    disk.open(path).truncate(size)


def swap(disk: SimDisk, one: str, other: str) -> None:
    disk.rename(one, f"{one}.aside")
    disk.rename(other, one)
    disk.rename(f"{one}.aside", other)


def copy_over(disk: SimDisk, source: str, target: str) -> None:
    disk.replace_file_now(target, disk.read_file(source))


def size_of(disk: SimDisk, path: str) -> int:
    return len(disk.read_file(path))


MENDED: dict[str, Harm] = {
    "txnindex removed": lambda d: d.disk.remove(d.aborted_paths()[1]),
    "all txnindexes removed": lambda d: [d.disk.remove(path) for path in d.aborted_paths()],
    "txnindex emptied": lambda d: truncate(d.disk, d.aborted_paths()[0], 0),
    "last entry of txnindex cut": lambda d: truncate(
        d.disk, d.aborted_paths()[1], size_of(d.disk, d.aborted_paths()[1]) - 34
    ),
    "half an entry of txnindex cut": lambda d: truncate(
        d.disk, d.aborted_paths()[1], size_of(d.disk, d.aborted_paths()[1]) - 9
    ),
    "bit of txnindex flipped": lambda d: d.disk.flip_bit(d.aborted_paths()[1], 17, 0),
    "txnindexes swapped": lambda d: swap(d.disk, d.aborted_paths()[0], d.aborted_paths()[2]),
    "timeindex cut by an entry": lambda d: truncate(
        d.disk, d.path(1, ".timeindex"), size_of(d.disk, d.path(1, ".timeindex")) - 12
    ),
    "timeindex emptied": lambda d: truncate(d.disk, d.path(0, ".timeindex"), 0),
    "timeindex removed": lambda d: d.disk.remove(d.path(1, ".timeindex")),
    "bit of timeindex flipped": lambda d: d.disk.flip_bit(d.path(1, ".timeindex"), 11, 1),
    "index removed": lambda d: d.disk.remove(d.path(1, ".index")),
    "bit of index flipped": lambda d: d.disk.flip_bit(d.path(1, ".index"), 3, 2),
    "indexes swapped": lambda d: swap(d.disk, d.path(0, ".index"), d.path(1, ".index")),
    "epochs altered": lambda d: d.disk.replace_file_now(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n2\n0 0\n1 2\n"),
    "epochs removed": lambda d: d.disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint"),
    "partition.metadata removed": lambda d: d.disk.remove(f"{DIRECTORY}/partition.metadata"),
    "partition.metadata altered": lambda d: d.disk.flip_bit(f"{DIRECTORY}/partition.metadata", 30, 1),
    "start beyond the end": lambda d: d.disk.replace_file_now(
        f"{ROOT}/log-start-offset-checkpoint", b"0\n1\nevents 0 1000000000000000\n"
    ),
    "recovery point beyond the end": lambda d: d.disk.replace_file_now(
        f"{ROOT}/recovery-point-offset-checkpoint", b"0\n1\nevents 0 1000000000000000\n"
    ),
}


@both("is_clean")
@pytest.mark.parametrize("harm", MENDED)
def test_what_can_be_made_anew_is_before_anything_is_served_and_told_once(
    harm: str, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=is_clean)
        caplog.clear()
        MENDED[harm](damaged)
        stand, log = start(damaged.disk)
        assert known_of(log) == damaged.known
        assert len(complaints(caplog)) >= 1, "it is told"
        again = complaints(caplog)
        assert len(again) == len(set(again)), "once"
        await stand.store.list_files()
        await stand.store.close()
        caplog.clear()
        third, log = start(stand.disk.after_kill())
        assert known_of(log) == damaged.known
        assert complaints(caplog) == [], "it is mended"
        await third.store.close()

    simulated(work())


@both("is_clean")
def test_what_was_made_anew_is_watched_from_then_on(is_clean: bool) -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=is_clean)
        disk = damaged.disk
        for harm in ("txnindex emptied", "bit of txnindex flipped", "last entry of txnindex cut", "txnindex removed"):
            MENDED[harm](damaged._replace(disk=disk))
            stand, log = start(disk)
            assert known_of(log).aborted == damaged.known.aborted
            await stand.store.close() if is_clean else await stand.store.list_files()
            disk = disk.after_kill()

    simulated(work())


@both("is_clean")
def test_nothing_is_told_of_files_that_are_as_they_were(is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=is_clean)
        _, log = start(damaged.disk)
        assert known_of(log) == damaged.known
        assert complaints(caplog) == []

    simulated(work())


MISSING: dict[str, tuple[Harm, str]] = {
    "first segment": (lambda d: d.disk.remove(d.path(0, ".log")), r"0\.log is missing, with offsets 0 to"),
    "middle segment": (lambda d: d.disk.remove(d.path(2, ".log")), r"\.log is missing, with offsets \d+ to"),
    "last segment": (lambda d: d.disk.remove(d.path(-1, ".log")), r"is missing|its end is lost"),
    "first segment with its indexes": (
        lambda d: [d.disk.remove(d.path(0, suffix)) for suffix in (".log", ".index", ".timeindex")],
        r"is missing, with offsets 0 to",
    ),
    "all segments": (lambda d: [d.disk.remove(d.path(n, ".log")) for n in range(len(d.bases))], "is missing"),
    "directory": (lambda d: d.disk.remove_tree(DIRECTORY), r"events-0 is missing, with offsets 0 to 35"),
    "end of a sealed segment": (
        lambda d: truncate(d.disk, d.path(1, ".log"), size_of(d.disk, d.path(1, ".log")) - 78),
        r"has \d+ bytes, but it had \d+",
    ),
    "a segment that is another": (
        lambda d: copy_over(d.disk, d.path(-1, ".log"), d.path(1, ".log")),
        r"has \d+ bytes, but it had \d+",
    ),
}


@both("is_clean")
@pytest.mark.parametrize("harm", MISSING)
def test_a_log_of_which_something_is_missing_is_not_served_and_says_what_helps(harm: str, is_clean: bool) -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=is_clean)
        MISSING[harm][0](damaged)
        disk = damaged.disk
        for _ in range(2):
            stand = Stand(disk)
            stand.open()
            before = {name: disk.content_of(f"{DIRECTORY}/{name}") for name in names_in(disk, ".log")}
            with pytest.raises(DataMissing, match=MISSING[harm][1]) as missing:
                stand.load()
            assert "\n" not in str(missing.value)
            assert f"semel log accept-loss {DIRECTORY}" in str(missing.value)
            assert before == {name: disk.content_of(f"{DIRECTORY}/{name}") for name in names_in(disk, ".log")}
            await stand.store.close()
            disk = disk.after_replacement(disk.medium)  # another boot

    simulated(work())


def names_in(disk: SimDisk, suffix: str) -> list[str]:
    return [name for name in disk.list_dir(DIRECTORY) if name.endswith(suffix)] if disk.exists(DIRECTORY) else []


@both("is_clean")
def test_a_directory_that_another_program_has_opened_since_is_taken_as_it_is(
    is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It has compacted, cut and removed what it liked."""

    async def work() -> None:
        damaged = await damageable(is_clean=is_clean)
        disk = damaged.disk
        disk.replace_file_now(f"{ROOT}/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":7}')
        for suffix in (".log", ".index", ".timeindex"):
            disk.remove(damaged.path(0, suffix))
        caplog.clear()
        stand, log = start(disk)
        assert stand.store.notes.previous_broker_epoch == 7
        assert offsets_from(log, log.start_offset) == [at for at in damaged.known.offsets if at >= damaged.bases[1]]
        assert sum("another program" in text for text in complaints(caplog)) == 1
        await stand.store.list_files()
        await stand.store.close()
        # From now on it is ours again.
        disk = stand.disk.after_kill()
        disk.remove(damaged.path(1, ".log"))
        with pytest.raises(DataMissing):
            start(disk)

    simulated(work())


def test_a_directory_that_another_program_has_opened_and_not_stopped_cleanly_is_taken_as_it_is() -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=True)
        damaged.disk.remove(f"{ROOT}/.kafka_cleanshutdown")
        damaged.disk.remove(damaged.path(0, ".log"))
        _, log = start(damaged.disk)
        assert log.start_offset == damaged.bases[1]

    simulated(work())


def test_a_log_that_another_program_has_opened_after_a_kill_is_known_by_the_snapshot_that_it_writes() -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=False)
        disk = damaged.disk
        disk.replace_file_now(f"{DIRECTORY}/{damaged.known.end_offset:020d}.snapshot", b"not ours")
        disk.remove(damaged.path(0, ".log"))
        _, log = start(disk)
        assert log.start_offset == damaged.bases[1]

    simulated(work())


def test_the_mark_of_a_clean_stop_is_one_that_kafka_reads_too() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        stand.store.notes.broker_epoch = 12
        await stand.store.close()
        first_line = stand.disk.read_file(f"{ROOT}/.kafka_cleanshutdown").partition(b"\n")[0]
        assert first_line == b'{"version":0,"brokerEpoch":12}'
        again = Stand(stand.disk.after_kill())
        again.open()
        assert again.store.notes.previous_broker_epoch == 12

    simulated(work())


def test_files_that_an_earlier_version_has_left_are_listed_while_the_node_runs() -> None:
    async def work() -> None:
        damaged = await damageable(is_clean=True)
        disk = damaged.disk
        for name in ("semel-node", "semel-marks", "events-0/semel-inventory"):
            disk.remove(f"{ROOT}/{name}")
        stand, log = start(disk)
        assert not log.inventory.segments
        await stand.store.list_files()
        assert set(log.inventory.segments) == set(damaged.bases[:-1])
        disk = disk.after_kill()
        disk.remove(damaged.path(1, ".log"))
        with pytest.raises(DataMissing):
            start(disk)

    simulated(work())


def test_retention_and_a_kill_at_any_moment_of_it_are_not_taken_for_damage() -> None:
    async def work() -> None:
        calls, call = 1000, 1
        while call < calls:
            damaged = await damageable(is_clean=False)
            stand, log = start(damaged.disk)
            log.high_watermark = log.end_offset
            log.config = settings(**SETTINGS | {"retention_bytes": 1500})
            disk, begin = damaged.disk, damaged.disk.calls
            disk.crash_at(begin + call, "after")
            try:
                await stand.store.apply_retention()
                calls = disk.calls - begin
            except PowerLost:
                pass
            _, log = start(disk.after_kill() if call % 2 else disk.after_power_loss(call))
            assert log.end_offset == damaged.known.end_offset
            assert offsets_from(log, log.start_offset) == list(range(log.start_offset, log.end_offset))
            call += 1

    simulated(work())


def test_a_directory_that_is_missing_before_any_checkpoint_is_known_by_its_mark() -> None:
    async def work() -> None:
        stand = Stand(SimDisk())
        stand.open()
        log = stand.load()
        write(log, batch(b"x"))
        await stand.commit(log)
        await stand.store.mark_flushed()
        disk = stand.disk.after_kill()
        disk.remove_tree(log.directory)
        again = Stand(disk)
        again.open()
        with pytest.raises(DataMissing, match="events-0 is missing, with offsets 0 to 0"):
            again.load()

    simulated(work())


def test_a_damaged_log_is_found_by_who_reads_it_and_not_by_who_warms_it() -> None:
    """Its indexes are checked first, where it is looked for: that must not end the request of a reader."""

    async def work() -> None:
        damaged = await damageable(is_clean=True)
        _, log = start(damaged.disk)
        segment = log.segments[1]
        damaged.disk.flip_bit(segment.path, 0, 6)  # of the first batch's offset
        cold = log.read(segment.base_offset, 1 << 20, log.end_offset, at_least_one=True)
        assert isinstance(cold, Cold)
        await cold.file.warm(cold.position, cold.length)
        with pytest.raises(CorruptSegment):
            log.read(segment.base_offset, 1 << 20, log.end_offset, at_least_one=True, warmed=True)

    simulated(work())

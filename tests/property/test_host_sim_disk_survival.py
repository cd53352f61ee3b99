"""The simulated disk against a naive model: what may and what must be there after a power loss."""

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from semel.sim.disk import PowerLost, SimDisk
from semel.sim.medium import SECTOR_BYTES

WRITE = st.tuples(st.just("write"), st.integers(0, 3000), st.integers(1, 1500), st.integers(1, 255))
TRUNCATE = st.tuples(st.just("truncate"), st.integers(0, 4000))
FLUSH = st.tuples(st.just("flush"))
STEPS = st.lists(st.one_of(WRITE, WRITE, TRUNCATE, FLUSH), max_size=25)
WHEN = st.sampled_from(["before", "during", "after"])


def sectors(data):
    """Content by sector, padded as it reads when the file is longer."""
    return [data[i : i + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0") for i in range(0, len(data), SECTOR_BYTES)]


class Naive:
    """Remembers every state of the file since the last flush, whole."""

    def __init__(self):
        self.states = [b""]

    def apply(self, step):
        data = bytearray(self.states[-1])
        if step[0] == "write":
            _, position, length, value = step
            data.extend(bytes(max(0, position - len(data))))
            data[position : position + length] = bytes([value]) * length
        elif step[0] == "truncate":
            data = data[: step[1]].ljust(step[1], b"\0")
        else:
            self.states = self.states[-1:]
        self.states.append(bytes(data))


def perform(file, step):
    if step[0] == "write":
        file.write_at(step[1], bytes([step[3]]) * step[2])
    elif step[0] == "truncate":
        file.truncate(step[1])
    else:
        file.flush_now()


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_every_surviving_sector_held_that_content_since_the_last_flush(steps, seed):
    disk, naive = SimDisk(seed), Naive()
    file = disk.open("/f", create=True)
    disk.sync_dir_now("/")
    for step in steps:
        perform(file, step)
        naive.apply(step)
        assert disk.read_file("/f") == naive.states[-1]
    survivor = disk.after_power_loss().read_file("/f")
    assert len(survivor) in {len(state) for state in naive.states}
    for index, sector in enumerate(sectors(survivor)):
        cut = min(SECTOR_BYTES, len(survivor) - index * SECTOR_BYTES)
        possible = {(sectors(state)[index : index + 1] or [bytes(SECTOR_BYTES)])[0][:cut] for state in naive.states}
        assert sector[:cut] in possible


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32), after=st.lists(WRITE, max_size=5))
def test_what_was_flushed_and_not_touched_since_survives(steps, seed, after):
    disk, naive = SimDisk(seed), Naive()
    file = disk.open("/f", create=True)
    disk.sync_dir_now("/")
    for step in [*steps, ("flush",)]:
        perform(file, step)
        naive.apply(step)
    flushed = sectors(naive.states[-1])
    touched = set()
    for step in after:
        perform(file, step)
        touched.update(range(step[1] // SECTOR_BYTES, (step[1] + step[2] - 1) // SECTOR_BYTES + 1))
    survivor = sectors(disk.after_power_loss().read_file("/f"))
    assert len(survivor) >= len(flushed)
    for index, sector in enumerate(flushed):
        if index not in touched:
            assert survivor[index] == sector


NAMES = st.sampled_from(["/a", "/b", "/d/a", "/e/a"])
NAME_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("rename"), NAMES, NAMES),
        st.tuples(st.just("sync"), st.sampled_from(["/", "/d", "/e"])),
    ),
    max_size=20,
)


def tree(disk):
    return {
        path: disk.read_file(path)
        for directory in ("/", "/d/", "/e/")
        for name in disk.list_dir(directory)
        if not disk.is_dir(path := directory + name)
    }


def change_names(disk, steps):
    """Perform what is possible of the steps; each file holds a flushed number of its own."""
    for number, step in enumerate(steps):
        try:
            if step[0] == "create":
                file = disk.open(step[1], create=True)
                file.write_at(0, b"%d" % number)
                file.flush_now()
            elif step[0] == "remove":
                disk.remove(step[1])
            elif step[0] == "rename":
                disk.rename(step[1], step[2])
            else:
                disk.sync_dir_now(step[1])
        except OSError:
            continue
        yield tree(disk)


def new_disk(seed):
    disk = SimDisk(seed)
    disk.make_dirs("/d")
    disk.make_dirs("/e")
    disk.sync_dir_now("/")
    return disk


@settings(max_examples=300, deadline=None)
@given(steps=NAME_STEPS, seed=st.integers(0, 2**32))
def test_every_surviving_name_stood_for_that_file_at_some_time(steps, seed):
    disk = new_disk(seed)
    history = [{}, *change_names(disk, steps)]
    for path, content in tree(disk.after_power_loss()).items():
        assert content in {state.get(path) for state in history}


@settings(max_examples=150, deadline=None)
@given(steps=NAME_STEPS, seed=st.integers(0, 2**32))
def test_synced_names_survive_exactly(steps, seed):
    disk = new_disk(seed)
    history = [{}, *change_names(disk, [*steps, ("sync", "/"), ("sync", "/d"), ("sync", "/e")])]
    assert tree(disk.after_power_loss()) == history[-1]


@settings(max_examples=400, deadline=None)
@given(steps=NAME_STEPS, seed=st.integers(0, 2**32))
@example(steps=[("create", "/a"), ("sync", "/"), ("rename", "/a", "/b"), ("rename", "/b", "/e/a")], seed=3)
@example(
    steps=[("create", "/d/a"), ("sync", "/d"), ("rename", "/d/a", "/e/a"), ("rename", "/e/a", "/a"), ("sync", "/")],
    seed=1,
)
def test_no_file_survives_under_two_names(steps, seed):
    disk = new_disk(seed)
    list(change_names(disk, steps))
    contents = list(tree(disk.after_power_loss()).values())
    assert len(contents) == len(set(contents))


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, call=st.integers(1, 25), when=WHEN, seed=st.integers(0, 2**32))
def test_the_same_seed_loses_the_same_bytes(steps, call, when, seed):
    def one_run():
        disk = SimDisk(seed)
        disk.crash_at(call, when)
        try:
            file = disk.open("/f", create=True)
            disk.sync_dir_now("/")
            for step in steps:
                perform(file, step)
        except PowerLost:
            pass
        first = disk.after_power_loss()
        again = disk.after_power_loss(random.Random(seed))
        return [d.read_file("/f") if d.exists("/f") else None for d in (first, again)], list(disk.log)

    assert one_run() == one_run()

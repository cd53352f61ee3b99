"""The native threads below the real disk, and the Python ones that stand in for them."""

import asyncio
import errno
import os
import select

import pytest

from semel.host import disk_threads
from semel.host.disk_threads import JobKind, NativeThreads, PythonThreads

_native = pytest.importorskip("semel.host._native", reason="the extension is not compiled")


@pytest.fixture
def file_fd(tmp_path):
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def wait_readable(pool):
    poller = select.poll()
    poller.register(pool.fileno(), select.POLLIN)
    assert poller.poll(10_000), "the eventfd was not signalled"


def collect(pool, count):
    ended = []
    while len(ended) < count:
        wait_readable(pool)
        ended += pool.collect()
    return dict(ended)


def test_each_kind_of_job_ends_with_its_errno(file_fd, tmp_path):
    os.write(file_fd, b"x" * 1_000_000)
    directory = os.open(tmp_path, os.O_RDONLY)
    doomed = os.open(tmp_path / "file", os.O_RDONLY)
    pool = _native.NativePool(2, 16)
    jobs = {
        pool.submit(_native.FDATASYNC, file_fd): 0,
        pool.submit(_native.FSYNC, directory): 0,
        pool.submit(_native.WARM, file_fd, 10, 2_000_000): 0,
        pool.submit(_native.CLOSE, doomed): 0,
        pool.submit(_native.FDATASYNC, 999_999): errno.EBADF,
        pool.submit(_native.WARM, 999_999, 0, 1): errno.EBADF,
    }
    assert collect(pool, 6) == jobs
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(doomed)
    assert pool.close() == []
    os.close(directory)


def test_a_full_ring_takes_no_job_until_some_are_collected(file_fd):
    pool = _native.NativePool(1, 4)
    numbers = [pool.submit(_native.FDATASYNC, file_fd) for _ in range(4)]
    assert all(numbers)
    assert pool.submit(_native.FDATASYNC, file_fd) == 0
    collect(pool, 4)
    assert pool.submit(_native.FDATASYNC, file_fd) > max(numbers)
    pool.close()


def test_the_eventfd_is_quiet_again_after_collecting(file_fd):
    pool = _native.NativePool(3, 256)
    for _ in range(3):
        for _ in range(200):
            assert pool.submit(_native.WARM, file_fd, 0, 0)
        assert len(collect(pool, 200)) == 200
        poller = select.poll()
        poller.register(pool.fileno(), select.POLLIN)
        assert poller.poll(0) == []
    pool.close()


def test_closing_cancels_what_was_not_begun_and_reports_all(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    slow = os.open(tmp_path / "fifo", os.O_RDWR)
    given_away = os.dup(slow)
    with open(tmp_path / "f", "wb") as stream:
        stream.write(bytes(1 << 20))
        pool = _native.NativePool(1, 64)
        numbers = [pool.submit(_native.FDATASYNC, stream.fileno()) for _ in range(30)]
        numbers.append(pool.submit(_native.CLOSE, given_away))
        ended = dict(pool.close())
    assert sorted(ended) == numbers
    assert set(ended.values()) <= {0, errno.ECANCELED}
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(given_away)
    os.close(slow)


def test_a_closed_pool_refuses_work_and_closes_twice():
    pool = _native.NativePool(1, 4)
    pool.close()
    assert pool.close() == []
    with pytest.raises(ValueError, match="closed"):
        pool.submit(_native.FDATASYNC, 0)


def test_a_dropped_pool_with_jobs_under_way_does_no_harm(file_fd):
    for _ in range(50):
        pool = _native.NativePool(2, 8)
        pool.submit(_native.FDATASYNC, file_fd)
        del pool


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_refused_and_can_exit():
    pool = _native.NativePool(2, 8)
    child = os.fork()
    if child == 0:
        try:
            pool.submit(_native.FDATASYNC, 0)
        except RuntimeError:
            os._exit(7 if pool.close() == [] else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    pool.close()


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="threads"):
        _native.NativePool(0, 8)
    pool = _native.NativePool(1, 8)
    with pytest.raises(ValueError, match="kind"):
        pool.submit(99, 0)
    pool.close()


@pytest.fixture(params=[NativeThreads, PythonThreads])
def threads_class(request):
    return request.param


class Told:
    """What jobs have ended with, in the order of their ends."""

    def __init__(self, count):
        self.errors = []
        self._count = count
        self._all = asyncio.Event()

    def __call__(self, error):
        self.errors.append(error)
        if len(self.errors) == self._count:
            self._all.set()

    async def all(self):
        await asyncio.wait_for(self._all.wait(), 10)
        return self.errors


async def test_a_failed_job_is_told_with_its_error(threads_class):
    threads = threads_class(asyncio.get_running_loop())
    told = Told(1)
    threads.submit(JobKind.FDATASYNC, 999_999, told)
    assert told.errors == [], "from the loop, not from within the call"
    assert await told.all() == [errno.EBADF]
    threads.close()


async def test_more_jobs_than_the_ring_holds_all_end(file_fd):
    threads = NativeThreads(asyncio.get_running_loop(), threads=2, ring_jobs=4)
    told = Told(100)
    for _ in range(100):
        threads.submit(JobKind.WARM, file_fd, told, 0, 1)
    assert await told.all() == [0] * 100
    threads.close()


async def test_who_fails_when_told_takes_nothing_from_the_others(threads_class, file_fd):
    loop = asyncio.get_running_loop()
    failures = []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    threads = threads_class(loop)
    told = Told(8)

    def fail(error):
        told(error)
        raise ValueError("planted")

    for number in range(8):
        threads.submit(JobKind.FDATASYNC, file_fd, fail if number % 2 else told)
    assert await told.all() == [0] * 8
    await asyncio.sleep(0)
    assert [type(failure) for failure in failures] == [ValueError] * 4
    threads.close()


async def test_closing_threads_ends_every_job(threads_class, file_fd):
    options = {"ring_jobs": 4} if threads_class is NativeThreads else {}
    threads = threads_class(asyncio.get_running_loop(), threads=1, **options)
    told, closed = [], []
    given_away = os.dup(file_fd)
    for _ in range(40):
        threads.submit(JobKind.FDATASYNC, file_fd, told.append)
    threads.submit(JobKind.CLOSE, given_away, closed.append)
    threads.close()
    assert closed == [0]
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(given_away)
    assert len(told) == 40
    assert set(told) <= {0, errno.ECANCELED}


async def test_without_the_extension_python_threads_are_used(monkeypatch):
    monkeypatch.setattr(disk_threads, "_native", None)
    threads = disk_threads.start_disk_threads(asyncio.get_running_loop())
    assert isinstance(threads, PythonThreads)
    threads.close()

"""Jobs in another process, and the host that carries everything."""

import asyncio
import operator
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor

import pytest

from semel.host.real import real_host
from semel.host.real_jobs import RealJobs


@pytest.fixture
async def jobs():
    jobs = RealJobs()
    yield jobs
    jobs.close()


def open_sockets():
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return [os.readlink(link) for link in links if os.path.exists(link) and "socket:" in os.readlink(link)]


def wait_for_the_end_of(process_id):
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{process_id}/exe"):
        assert time.monotonic() < deadline, "the worker is still there"
        time.sleep(0.002)


async def test_a_job_runs_in_another_process_and_its_errors_come_back(jobs):
    assert not jobs.has_worker
    worker = await jobs.run(os.getpid)
    assert worker != os.getpid()
    assert await jobs.run(operator.add, 20, 22) == 42
    with pytest.raises(ZeroDivisionError):
        await jobs.run(operator.truediv, 1, 0)
    assert await jobs.run(os.getpid) == worker


async def test_a_worker_inherits_no_listening_socket(jobs):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        os.set_inheritable(listening.fileno(), True)
        assert await jobs.run(open_sockets) == []


async def test_a_broken_worker_fails_its_job_and_the_next_one_gets_a_new_worker(jobs):
    first = await jobs.run(os.getpid)
    with pytest.raises(BrokenExecutor):
        await jobs.run(os._exit, 3)
    second = await jobs.run(os.getpid)
    os.kill(second, signal.SIGKILL)  # dies while idle: nothing was lost, so nobody is told
    await asyncio.to_thread(wait_for_the_end_of, second)
    third = await run_until_it_works(jobs, os.getpid)
    assert len({first, second, third}) == 3


async def run_until_it_works(jobs, function):
    for _ in range(3):  # the death may be noticed only after the job was handed over
        try:
            return await jobs.run(function)
        except BrokenExecutor:
            continue
    raise AssertionError("no new worker was started")


async def test_an_idle_worker_is_ended_and_started_again():
    jobs = RealJobs(idle_s=0.01)
    first = await jobs.run(os.getpid)
    async with asyncio.timeout(10):
        while jobs.has_worker:  # noqa: ASYNC110 - a timer of its own ends it and tells nobody
            await asyncio.sleep(0.001)
    assert await jobs.run(os.getpid) != first
    jobs.close()


async def test_closing_ends_a_job_that_runs(jobs):
    await jobs.run(os.getpid)
    task = asyncio.create_task(jobs.run(time.sleep, 600))
    await asyncio.sleep(0.02)
    jobs.close()
    with pytest.raises((BrokenExecutor, asyncio.CancelledError)):
        await task


async def test_work_in_the_thread_shares_memory_and_keeps_its_order(jobs):
    shared, threads = [], set()

    def work(number):
        threads.add(threading.get_ident())
        shared.append(number)
        if number == 3:
            raise ArithmeticError(number)
        return -number

    outcomes = await asyncio.gather(*(jobs.run_in_thread(work, n) for n in range(5)), return_exceptions=True)
    assert shared == [0, 1, 2, 3, 4]
    assert [outcomes[n] for n in (0, 1, 2, 4)] == [0, -1, -2, -4]
    assert isinstance(outcomes[3], ArithmeticError)
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert not jobs.has_worker


ORPHAN = """
import asyncio, os
from semel.host.real_jobs import RealJobs

async def main():
    print(await RealJobs().run(os.getpid), flush=True)
    os.kill(os.getpid(), 9)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_worker_ends_when_its_parent_was_killed(tmp_path):
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.run([sys.executable, script], capture_output=True, env=environment, timeout=60)
    worker = int(parent.stdout)
    wait_for_the_end_of(worker)


UNGUARDED = """
import asyncio, os
from semel.host.real_jobs import RealJobs

print("main module", flush=True)
asyncio.run(RealJobs().run(os.getpid))
"""


def test_a_program_without_a_main_guard_is_not_run_again_by_its_worker(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, script], capture_output=True, env=environment, timeout=60)
    assert done.stdout == b"main module\n"
    assert done.returncode == 0, done.stderr


async def test_the_real_host_has_everything(tmp_path):
    host = real_host(max_open_files=10)
    assert abs(host.clock.wall_ms() - time.time() * 1000) < 1000
    before = host.clock.monotonic_ms()
    assert 0 <= host.clock.monotonic_ms() - before < 1000
    await host.disk.replace_file(str(tmp_path / "a"), b"x")
    assert 0 <= host.random.random() < 1
    listener = await host.network.listen("127.0.0.1", 0, lambda link: None)
    assert listener.port > 0
    listener.close()
    host.close()

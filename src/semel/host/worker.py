"""The worker process of `real_jobs`: reads pickled jobs from its standard input, writes pickled outcomes to its output.

It is started by name, not by multiprocessing, which would run the main module of the program a second time.
"""

import ctypes
import os
import pickle
import signal
import sys
from struct import Struct
from typing import IO, Any

LENGTH = Struct(">Q")
_PR_SET_PDEATHSIG = 1


def send(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    stream.write(LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message; EOFError when there is none."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides when we end
    parent = int(sys.argv[1])
    # A parent that is killed takes us along: a node that starts after it must not find us still writing.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    jobs, outcomes = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a job prints must not be taken for an outcome
    while True:
        try:
            function, args = receive(jobs)
        except EOFError:
            return
        try:
            outcome = (True, function(*args))
        except Exception as error:
            outcome = (False, error)
        send(outcomes, outcome)


if __name__ == "__main__":
    main()

"""The world as the rest of the program sees it: Clock, Disk, Network, Jobs, and the Host that carries them.

Nothing above this room reads a clock, opens a file or a socket by itself, so a whole cluster runs in one process under
a seed. The real ones come from `semel.host.real`, the simulated ones from `semel.sim.host`; code cannot tell which.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, TypeVarTuple, cast

Buffer: TypeAlias = bytes | bytearray | memoryview

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


KEEPALIVE_S = 60
"""A peer that has not been heard of for so long, not even by TCP's own probes, is gone: the connection ends with
ETIMEDOUT. So nobody waits on a half-open connection for as long as a request may take (a JoinGroup: five minutes)."""


class Clock(Protocol):
    """Wall time may jump and is for people and timestamps; monotonic time never goes back and is for intervals."""

    def wall_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...

    def monotonic_ns(self) -> int:
        """The same clock, for what takes less than a millisecond."""


class File(Protocol):
    """A file by its inode: a rename moves `path` along, and after a removal only pins made before keep it readable."""

    path: str

    def size(self) -> int: ...

    def write_at(self, position: int, *parts: Buffer) -> None:
        """Write to the page cache: all of it or OSError. After an error some may be there: the caller truncates."""

    def read_at(self, position: int, length: int) -> bytes:
        """Read `length` bytes, fewer only at the end of the file."""

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill `buffer`, less only at the end of the file; return how many bytes were read."""

    def truncate(self, length: int) -> None: ...

    async def flush(self) -> None:
        """Make durable what was written before the call. An OSError is final: every later flush raises it again."""

    def flush_then(self, done: Callable[[OSError | None], None]) -> None:
        """As `flush`, but when it is over `done` is called from the loop, with what went wrong: without a task."""

    def flush_now(self) -> None:
        """As `flush`, but blocking: for start-up and clean stop only."""

    def is_warm(self, position: int, length: int) -> bool:
        """Whether a range looks to be in the page cache (sampled), so that reading or sending it would not stall."""

    async def warm(self, position: int, length: int) -> None:
        """Bring a range into the page cache, off the loop."""

    def pin(self) -> None:
        """Keep the content readable, through `close` and removal, until as many `unpin` calls."""

    def unpin(self) -> None: ...

    def close(self) -> None:
        """Takes effect when the last pin is gone. Closing twice is allowed; using a closed file is a ValueError."""


class FileRange:
    """Bytes of a file that are to be sent without being read: pins its file from construction until `release`."""

    __slots__ = ("file", "length", "position", "released")

    def __init__(self, file: File, position: int, length: int) -> None:
        if position < 0 or length < 0:
            raise ValueError(f"a file range cannot start at {position} with length {length}")
        file.pin()
        self.file = file
        self.position = position
        self.length = length
        self.released = False

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileRange({self.file.path!r}, {self.position}, {self.length})"

    def read(self) -> bytes:
        """The bytes themselves: for tests and for paths that must look inside."""
        return self.file.read_at(self.position, self.length)

    def release(self) -> None:
        """Give the pin back. Whoever sends or drops the range calls this; calling it again does nothing."""
        if not self.released:
            self.released = True
            self.file.unpin()


Part: TypeAlias = Buffer | FileRange


class AlreadyLocked(Exception):
    """Another process (or another lock of this one) holds the lock file."""

    def __init__(self, path: str, holder_pid: int | None) -> None:
        holder = "another process" if holder_pid is None else f"process {holder_pid}"
        super().__init__(f"{path} is locked by {holder}: another node keeps its data there")
        self.path = path
        self.holder_pid = holder_pid


class Lock(Protocol):
    """Held until `close` or until the process dies."""

    def close(self) -> None: ...


class Disk(Protocol):
    """Files and directories. Creations, renames and removals are durable only after `sync_dir` of the directory."""

    @property
    def boot_id(self) -> str:
        """While it is the same, also from one process to the next, nothing that was written is lost: the page cache
        still has what was not flushed. Empty if that is not known."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file; `create` makes a new empty one. Raises FileNotFoundError or, with `create`, FileExistsError."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def file_number(self, path: str) -> int:
        """What the file system knows the file by: the same after a restart, and another for a copy of the file."""

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_dirs(self, path: str) -> None:
        """Make a directory and its missing parents; one that is there already is fine."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory at once, replacing a file that is there."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    async def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""

    def sync_dir_now(self, path: str) -> None: ...

    def sync_parents_now(self, path: str) -> None:
        """Make the name of a directory durable, and those of the directories above it that this process can have made
        with it."""

    def read_file(self, path: str) -> bytes: ...

    async def replace_file(self, path: str, data: Buffer) -> None:
        """Give a file new content, durably and at once: after power loss it holds the old content or the new.

        Of several calls for one path the one that was made last wins, whatever finishes first.
        """

    def replace_file_now(self, path: str, data: Buffer) -> None: ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...

    def lock(self, path: str) -> Lock:
        """Lock a file, making it if need be. Raises AlreadyLocked, which names the holder."""

    def close(self) -> None:
        """Give back threads and descriptors. Flushes still under way are waited for, not started ones are cancelled."""


class LaterReply(Protocol):
    """A reply that is made together with others. Who has got it makes it before anything else is done, but for reading
    from other links that have such replies too."""

    is_made: bool

    def made(self) -> bytes | None:
        """The reply. None: there is none, or its receiver has sent it itself. The same when it is asked again."""


class Receiver(Protocol):
    """What a connection's owner gives to its Link. Exceptions raised in here are logged and close that link alone."""

    def get_buffer(self) -> memoryview:
        """Where the next bytes go: at least one byte long."""

    def received(self, count: int) -> bytes | LaterReply | None:
        """`count` bytes were put at the start of the last buffer. What is returned is sent, as by `send`, but for less:
        a way for small answers."""

    def drained(self) -> None:
        """Everything queued by `send` has been taken by the socket, after some of it had to wait."""

    def closed(self, reason: BaseException | None) -> None:
        """The link has ended; called exactly once, never from inside `send`. None: a clean end, by the peer or us."""


def made(reply: bytes | LaterReply | None) -> bytes | None:
    return reply if reply is None or type(reply) is bytes else cast(LaterReply, reply).made()


class Link(Protocol):
    """A connection. It never blocks and never grows by itself: who sends watches `unsent_bytes`."""

    peer: str
    unsent_bytes: int

    def start(self, receiver: Receiver) -> None:
        """Begin to read. Nothing is delivered before. The receiver's methods are looked up here, once."""

    def send(self, parts: Sequence[Part]) -> None:
        """Send parts in order. What the socket does not take is queued by reference, so buffers must stay unchanged.

        File ranges are released when sent or dropped. After the link has ended, parts are dropped silently.
        """

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """End now: what is queued is dropped."""

    def close_when_sent(self) -> None:
        """Read no more, send what is queued, then end."""


class Listener(Protocol):
    port: int

    def close(self) -> None:
        """Accept no more. Links already accepted go on."""


class Network(Protocol):
    @property
    def most_connections(self) -> int:
        """How many connections there may be at once, so that something is left for the disk."""

    async def listen(self, host: str, port: int, accept: Callable[[Link], None]) -> Listener:
        """Call `accept` with every new connection; port 0 picks a free one."""

    async def connect(self, host: str, port: int) -> Link:
        """Connect, or raise OSError. There is no time limit: the caller sets one."""


class Jobs(Protocol):
    """Heavy work away from the loop: in another process, so function, arguments and result must pickle. A Disk does:
    it arrives as a disk of that process, on the same files."""

    async def run(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result: ...

    async def run_in_thread(self, function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """In a thread of this process: for short work that lets go of the interpreter lock, such as decompression."""
        ...

    def close(self) -> None: ...


def nothing() -> None:
    """Where the host has nothing to do."""


@dataclass(frozen=True, slots=True)
class Host:
    clock: Clock
    disk: Disk
    network: Network
    random: random_module.Random
    jobs: Jobs
    keep_memory: Callable[[], None] = nothing
    """Much was made that is there to stay: the search for garbage need not look at it, which would hold the loop."""

    def close(self) -> None:
        self.jobs.close()
        self.disk.close()

# cython: language_level=3
"""What every request of a connection passes through, compiled or plain Python: `served` has all the rest."""

from __future__ import annotations

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

compiled: bool = cython.compiled


# A request that waits in the shared buffer takes so many bytes of it or a multiple; not a power of two, or the first
# bytes of all of them would have the same few places in the processor's cache.
_PLACE_BYTES = cython.declare(cython.Py_ssize_t, 1024 + 64)


@cython.final
@cython.cclass
class SharedBuffer:
    """Where all connections of a server read to. What is read is served, or moved, before the next read of any, but for
    requests that are answered together: these stay where they are until then."""

    buffer = cython.declare(memoryview, visibility="readonly")
    start = cython.declare(cython.Py_ssize_t, visibility="readonly")  # of what is read next, or was last
    _places: list
    _place: cython.Py_ssize_t
    _waiting: list

    def __init__(self, size_bytes: cython.Py_ssize_t) -> None:
        self.buffer = memoryview(bytearray(size_bytes))
        # No later one is read into, so that there is always room for what a connection has to say.
        self._places = [self.buffer[start:] for start in range(0, size_bytes // 2, _PLACE_BYTES)]
        self._place = self.start = 0
        self._waiting = []

    @cython.ccall
    def free(self) -> memoryview:
        if self._waiting and self._waiting[len(self._waiting) - 1].is_made:  # and so are those before it
            self._waiting.clear()
            self._place = self.start = 0
        return self._places[self._place]

    @cython.ccall
    def keep(self, answer: object, count: cython.Py_ssize_t) -> object:
        """What was read is needed until its answer is made."""
        self._waiting.append(answer)
        self._place += count // _PLACE_BYTES + 1
        self.start = self._place * _PLACE_BYTES
        if self._place >= len(self._places):
            self.settle()
        return None

    @cython.ccall
    def settle(self) -> object:
        """Has the answers made that wait for it: nothing is needed any more."""
        if self._waiting:
            waiting: list = self._waiting
            self._waiting = []
            for answer in waiting:
                answer.made()
        self._place = self.start = 0
        return None

    @cython.ccall
    def move_to_front(self, start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> object:
        if start > 0:
            self.buffer[:count] = self.buffer[start : start + count]
        return None


@cython.cclass
class Receiving:
    """Asks the lane of a connection first. Whatever it does not answer goes the longer way."""

    # Its `unsent_bytes` count what the peer has not read.
    link = cython.declare(object, visibility="public")
    # `lane(connection, buffer, start, count)` makes a later answer to a whole request in the buffer, or has None: it is
    # for the longer way. Until that answer is made it is the only one that knows of the request.
    lane = cython.declare(object, visibility="public")
    principal = cython.declare(str, visibility="public")
    was_active = cython.declare(cython.bint, visibility="public")
    _shared = cython.declare(SharedBuffer, visibility="public")
    # A frame that did not come in one read, what came before it was known to be one, and answers that are not sent yet.
    _frame = cython.declare(object, visibility="public")
    _held = cython.declare(bytearray, visibility="public")
    _outstanding = cython.declare(object, visibility="public")
    _most_bytes = cython.declare(cython.Py_ssize_t, visibility="public")

    def get_buffer(self) -> memoryview:
        return self._shared.free() if self._frame is None else self._rest_of_frame()

    def received(self, count: cython.Py_ssize_t) -> object:
        shared: SharedBuffer = self._shared
        start: cython.Py_ssize_t = shared.start
        self.was_active = True
        if (
            self.lane is not None
            and self._frame is None
            and not self._held
            and not self._outstanding
            and not self.link.unsent_bytes
            and count <= self._most_bytes
        ):
            try:
                answer = self.lane(self, shared.buffer, start, count)
            except Exception as error:
                self.not_served(error)
                return None
            if answer is not None:
                shared.keep(answer, count)
                return answer
        shared.settle()
        if self._frame is None:
            shared.move_to_front(start, count)
        return self._received(count)

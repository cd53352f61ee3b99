# cython: language_level=3
"""What every request of a connection passes through, compiled or plain Python: `served` has all the rest."""

from __future__ import annotations

try:
    import cython
except ImportError:  # an install without Cython and without a compiled kernel
    from semel.records import _cython_shadow as cython

compiled: bool = cython.compiled


@cython.cclass
class Receiving:
    """Asks the lane of a connection first. Whatever it does not answer goes the longer way."""

    # Its `unsent_bytes` count what the peer has not read.
    link = cython.declare(object, visibility="public")
    # `lane(principal, buffer, count)` answers a whole request in the buffer, or with None: it is for the longer way.
    lane = cython.declare(object, visibility="public")
    principal = cython.declare(str, visibility="public")
    was_active = cython.declare(cython.bint, visibility="public")
    _buffer = cython.declare(memoryview, visibility="public")
    # A frame that did not come in one read, what came before it was known to be one, and answers that are not sent yet.
    _frame = cython.declare(object, visibility="public")
    _held = cython.declare(bytearray, visibility="public")
    _outstanding = cython.declare(object, visibility="public")
    _most_bytes = cython.declare(cython.Py_ssize_t, visibility="public")

    def get_buffer(self) -> memoryview:
        return self._buffer if self._frame is None else self._rest_of_frame()

    def received(self, count: cython.Py_ssize_t) -> bytes | None:
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
                answer = self.lane(self.principal, self._buffer, count)
            except Exception as error:
                self._not_served(error)
                return None
            if answer is not None:
                return answer
        return self._received(count)

# cython: language_level=3
"""One round over the sockets that are ready: a request is read, and what its reader answers at once is sent, without
more of Python in between than the reader itself; a range of a file goes on. What is unusual in any way is for the link to
handle."""

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_wait(int epoll_fd, epoll_event *events, int most, int timeout_ms)
    unsigned int EPOLLIN, EPOLLOUT

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void *buffer, size_t size, int flags)
    ssize_t send(int fd, const void *buffer, size_t size, int flags)
    int MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL


    int setsockopt(int fd, int level, int name, const void *value, unsigned int size)

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_CORK

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int fd, int file_fd, long *position, size_t size)

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno

cdef enum:
    EVENTS_PER_ROUND = 64
    PAGE_BYTES = 4096
    # What `sendfile` moves at a time. With a few bytes before them they are all the pieces that a packet can have.
    MOVED_BYTES = 16 * PAGE_BYTES

cdef int FLAGS = MSG_DONTWAIT | MSG_NOSIGNAL


cdef bytes made(reply):
    return reply if reply is None or type(reply) is bytes else reply.made()


cdef class Reader:
    """Of a link that only reads at the moment: nothing of it waits to be sent, but for a reply until its round ends."""

    cdef object _link
    cdef object _get_buffer
    cdef object _received
    cdef int _fd
    cdef object _reply
    cdef bint _sends_itself
    cdef bint replies_later  # its last reply was a `LaterReply`

    def __init__(self, link, int fd, get_buffer, received):
        self._link = link
        self._fd = fd
        self._get_buffer = get_buffer
        self._received = received

    def take_reply(self) -> bytes | None:
        """The link has more to send: the reply that is kept for it, if there is one, goes before that."""
        reply, self._reply = self._reply, None
        self._sends_itself = True
        return made(reply)

    def may_reply(self) -> None:
        """All that the link had to send is on its way: what is replied next does not overtake anything."""
        self._sends_itself = False

    def end(self) -> None:
        """The link has ended, and its descriptor may be another's by now."""
        self._fd = -1
        reply, self._reply = self._reply, None
        made(reply)

    cdef int read(self) except -1:
        """Whether there is a reply to be sent."""
        cdef Py_buffer buffer
        cdef ssize_t got
        cdef int error = 0
        try:
            PyObject_GetBuffer(self._get_buffer(), &buffer, PyBUF_WRITABLE)
        except BufferError:
            self._link.ready(EPOLLIN)
            return 0
        got = recv(self._fd, buffer.buf, buffer.len, MSG_DONTWAIT)
        if got < 0:
            error = errno
        is_full = got == buffer.len
        PyBuffer_Release(&buffer)
        if got > 0:
            reply = self._received(got)
            self.replies_later = reply is not None and type(reply) is not bytes
            if self._sends_itself:
                reply = made(reply)
                if reply is not None:
                    self._link.send([reply])
            else:
                self._reply = reply
            if is_full:
                self._link.ready(EPOLLIN)
            return self._reply is not None
        if got == 0:
            self._link.ready(EPOLLIN)
        elif error != EAGAIN and error != EINTR:
            self._link.read_failed(error)
        return 0

    cdef int send(self) except -1:
        cdef bytes reply
        cdef ssize_t sent
        kept, self._reply = self._reply, None
        reply = made(kept)
        if reply is None:  # the link had more to send, and has taken it along, or it has ended
            return 0
        sent = send(self._fd, PyBytes_AS_STRING(reply), PyBytes_GET_SIZE(reply), FLAGS)
        if sent != PyBytes_GET_SIZE(reply):
            self._link.reply_refused(reply, max(sent, 0), errno if sent < 0 else 0)
        return 0


cdef class RangeSender:
    """Of a link whose next bytes are a few, perhaps, a range of a file, and perhaps a few after it: `head_sent`, `sent`
    and `tail_sent` are on their way. The end of the range is corked until the bytes after it are there: a packet for a
    few costs as much as one for many. Its beginning is not: pages would be split between packets.

    The first packet, with the bytes before the range, is sent by itself. It is full of pieces before it is full of bytes:
    so it would wait for the next, and leave together with that. But a congestion control that spaces packets out (bbr)
    sets a timer for the second of two, however fast the network is, and on virtual machines that takes as long as to send
    eight."""

    cdef int _fd
    cdef int _file_fd
    cdef long _position
    cdef ssize_t _left
    cdef ssize_t _most
    cdef bytes _head
    cdef bytes _tail
    cdef bint _is_corked
    cdef readonly ssize_t head_sent
    cdef readonly ssize_t sent
    cdef readonly ssize_t tail_sent

    def __init__(self, int fd, bytes head, int file_fd, long position, ssize_t length, bytes tail, ssize_t most):
        """`most` is its share of one round."""
        self._head = head
        self._tail = tail
        self._fd = fd
        self._file_fd = file_fd
        self._position = position
        self._left = length
        self._most = most

    def begin(self) -> bool:
        """As in a round."""
        return self.send()

    cdef bint send(self) noexcept:
        """Whether that is all: everything is sent, or was refused. Then it is for the link to go on."""
        cdef ssize_t sent
        cdef ssize_t left = PyBytes_GET_SIZE(self._head) - self.head_sent
        cdef ssize_t first, most = self._most
        if left:
            sent = send(self._fd, PyBytes_AS_STRING(self._head) + self.head_sent, left, FLAGS | MSG_MORE)
            if sent < 0:
                return errno != EAGAIN and errno != EINTR
            self.head_sent += sent
            if sent < left:
                return False
        if self.head_sent and not self.sent:
            first = MOVED_BYTES - self._position % PAGE_BYTES
            if first < min(self._left, most):
                sent = self.send_of_range(first)
                if sent <= 0:
                    return not (sent < 0 and (errno == EAGAIN or errno == EINTR))
                if sent < first:
                    return False
                most -= first
        if self.sent and not self._is_corked and PyBytes_GET_SIZE(self._tail):
            self.cork(1)
        sent = self.send_of_range(most)
        if sent < 0 and (errno == EAGAIN or errno == EINTR):
            return False
        if sent > 0:
            if self._left:
                return False
            left = PyBytes_GET_SIZE(self._tail)
            if left:
                self.tail_sent = max(send(self._fd, PyBytes_AS_STRING(self._tail), left, FLAGS), 0)
        self.end()
        return True

    cdef ssize_t send_of_range(self, ssize_t most) noexcept:
        cdef ssize_t sent = sendfile(self._fd, self._file_fd, &self._position, min(self._left, most))
        if sent > 0:
            self.sent += sent
            self._left -= sent
        return sent

    cpdef void end(self) noexcept:
        """Nothing is held back any more."""
        if self._is_corked:
            self.cork(0)

    cdef void cork(self, int is_corked) noexcept:
        self._is_corked = is_corked
        setsockopt(self._fd, IPPROTO_TCP, TCP_CORK, &is_corked, sizeof(is_corked))


def serve_round(int epoll_fd, dict readers, dict senders, serve) -> bool:
    """Whether any was ready. `serve(fd, events)` is for those that have nobody in `readers` or `senders`, or more to
    tell of. Whatever may do more than reply later begins when the replies before it are made."""
    cdef epoll_event events[EVENTS_PER_ROUND]
    cdef Reader reader
    cdef RangeSender sender
    cdef int number, count
    cdef list kept = []
    cdef bint are_made = True
    count = epoll_wait(epoll_fd, events, EVENTS_PER_ROUND, 0)
    for number in range(count):
        reader = readers.get(events[number].data.fd) if events[number].events == EPOLLIN else None
        sender = senders.get(events[number].data.fd) if events[number].events == EPOLLOUT else None
        if sender is not None and not sender.send():
            continue
        if not are_made and (reader is None or not reader.replies_later):
            make_replies(kept)
            are_made = True
        if reader is None:
            serve(events[number].data.fd, events[number].events)
            continue
        try:
            if reader.read():
                kept.append(reader)
                are_made = are_made and not reader.replies_later
        except Exception as error:
            reader._link.receiver_failed(error)
    for reader in kept:
        try:
            reader.send()
        except Exception as error:
            reader._link.receiver_failed(error)
    return count > 0


cdef make_replies(list kept):
    cdef Reader reader
    for reader in kept:
        try:
            made(reader._reply)
        except Exception as error:
            reader._link.receiver_failed(error)

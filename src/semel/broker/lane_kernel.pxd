cimport cython
from semel.log.append_kernel cimport LogEnd, PendingAppend
from semel.log.ordinary_kernel cimport OrdinaryRules
from semel.metrics.counts_kernel cimport Times
from semel.replication.term_kernel cimport Generation, TermEnd


@cython.final
cdef class RequestForm:
    cdef bytes prefix
    cdef Py_ssize_t prefix_bytes
    cdef bint has_compact_length
    cdef Py_ssize_t suffix_bytes
    cdef Py_ssize_t batch_start(
        self, const unsigned char *data, Py_ssize_t start, Py_ssize_t frame_end
    ) except -2


@cython.final
cdef class ReplyForm:
    cdef bytearray form
    cdef Py_ssize_t base_at
    cdef Py_ssize_t start_at
    cpdef bytes to(self, long long correlation_id, long long base_offset, long long start_offset)


@cython.final
cdef class AppendRound:
    cdef list waiting
    cdef readonly long long now_ms
    cdef readonly long long began_ns
    cdef object now_ns
    cdef Times times
    cdef object begin(self, long long now_ms)
    cdef object complete(self)


@cython.final
cdef class PendingProduce(PendingAppend):
    cdef AppendRound round
    cdef ProduceLane lane
    cdef object connection
    cdef Py_ssize_t frame_start
    cdef Py_ssize_t frame_end
    cdef long long correlation_id
    cdef object commit
    cdef object error
    cdef object answer
    cdef public bint is_made
    cdef public object batch
    cdef long long began_ns
    cpdef object answered(self, long long now_ns)
    cdef object make(self, ProduceLane lane)
    cdef object fall_back(self)


@cython.final
cdef class ProduceLane:
    cdef AppendRound round
    cdef RequestForm form
    cdef ReplyForm reply
    cdef bytes key
    cdef TermEnd term
    cdef LogEnd log
    cdef OrdinaryRules rules
    cdef object may_join
    cdef bint waits
    cdef long long timeout_ms
    cdef object refuse
    cdef Generation generation
    cdef long long made_in
    cdef dict siblings
    cdef object clock
    cdef memoryview buffer
    cdef unsigned char[::1] data
    cpdef bint is_over(self) except -1
    cdef PendingProduce take_on_sibling(
        self, object connection, memoryview buffer, Py_ssize_t start, Py_ssize_t count
    )
    cdef object write_pending(self)
    cdef object tell(self, PendingProduce first)

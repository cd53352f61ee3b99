cimport cython
from semel.log.append_kernel cimport LogEnd, PendingAppend, SegmentEnd


@cython.final
cdef class OrdinaryRules:
    cdef readonly object config
    cdef readonly long long index_interval_bytes
    cdef long long max_batch_bytes
    cdef long long before_ms
    cdef long long after_ms
    cdef bint needs_keys
    cdef long long segment_bytes
    cdef long long segment_index_bytes
    cdef unsigned long long segment_ms
    cpdef object append(
        self, LogEnd log, memoryview batch, long long leader_epoch, long long now_ms, object may_join=*
    )
    cdef bint take(
        self,
        PendingAppend one,
        LogEnd log,
        memoryview buffer,
        unsigned char *data,
        Py_ssize_t start,
        Py_ssize_t size,
        long long leader_epoch,
        long long now_ms,
        object may_join,
    ) except -1
    cdef bint has_room_behind(self, SegmentEnd segment, long long pending) except -1
    cdef bint are_whole(
        self,
        memoryview buffer,
        const unsigned char *data,
        Py_ssize_t start,
        Py_ssize_t size,
        long long count,
        long long greatest,
        long long now_ms,
    ) except -1
    cdef bint are_plain(
        self,
        const unsigned char *data,
        Py_ssize_t start,
        Py_ssize_t end,
        long long count,
        long long greatest,
        long long earliest,
    ) noexcept

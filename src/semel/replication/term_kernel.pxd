from semel.log.append_kernel cimport LogEnd


cdef class Generation:
    cdef readonly long long number
    cpdef object raise_it(self)


cdef class TermEnd:
    cdef public LogEnd log
    cdef public long long leader_epoch
    cdef public bint is_closed
    cdef public bint commits_at_append
    cdef public bint flushes_in_turns
    cdef public object waiting
    cdef public dict watchers
    cpdef object appended(self)
    cpdef object advance(self, long long high_watermark)

cdef class TopicCounts:
    cdef public long long batches_in
    cdef public long long records_in
    cdef public long long bytes_in
    cdef public long long bytes_out
    cdef public long long replication_bytes_out
    cdef public long long duplicates
    cdef public long long refused
    cpdef object add_batches(self, long long batches, long long records, long long size_bytes)


cdef class Times:
    cdef readonly list counts
    cdef readonly long long total_ns
    cpdef object observe(self, long long taken_ns, long long times=*)

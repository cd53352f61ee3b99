from semel.metrics.counts_kernel cimport TopicCounts


cdef class SegmentEnd:
    cdef public long long base_offset
    cdef public long long next_offset
    cdef public long long size_bytes
    cdef public long long first_timestamp_ms
    cdef public long long max_timestamp_ms
    cdef public long long max_timestamp_offset
    cdef public long long bytes_since_index
    cdef public object offset_index
    cdef public object time_index
    cdef public object file
    cpdef long long write(self, list batches) except? -1
    cpdef object note(
        self,
        long long last_offset,
        long long max_timestamp_ms,
        long long position,
        long long size_bytes,
        long long index_interval_bytes,
    )
    cpdef bint is_full(
        self,
        long long size_bytes,
        long long last_offset,
        long long timestamp_ms,
        long long now_ms,
        long long most_bytes,
        long long most_index_bytes,
        unsigned long long most_ms,
    ) except -1


cdef class LogEnd:
    cdef public long long start_offset
    cdef public long long end_offset
    cdef public long long high_watermark
    cdef public object config
    cdef public list segments
    cdef public object epochs
    cdef public object producers
    cdef public list dirty
    cdef public list pending
    cdef public long long pending_bytes
    cdef public TopicCounts counts
    cpdef object note_written(self, SegmentEnd segment, long long leader_epoch, long long base_offset)
    cdef object write_pending(self, long long leader_epoch, long long index_interval_bytes)
    cdef list bytes_of(self, list pending, long long size_bytes)
    cdef bytes row_of(self, long long producer_id)


cdef class PendingAppend:
    cdef memoryview buffer
    cdef unsigned char *data
    cdef Py_ssize_t start
    cdef Py_ssize_t size_bytes
    cdef long long base_offset
    cdef long long last_offset
    cdef long long greatest_ms
    cdef long long sent_epoch
    cdef long long producer_id
    cdef bytes row
    cdef bint begins_transaction
    cdef bint is_written
    cdef object give_offsets(self, long long leader_epoch)
    cdef object take_offsets_back(self)


cdef unsigned char *address_of(unsigned char[::1] view) noexcept

cdef long long number(const unsigned char *data, Py_ssize_t at, int size) noexcept
cdef void put(unsigned char *data, Py_ssize_t at, long long value, int size) noexcept
cpdef bint is_in_transaction(bytes row) except -1
cpdef bint follows(bytes row, long long producer_epoch, long long sequence, bint is_transactional) except -1
cpdef bytes next_row(
    bytes row,
    long long producer_id,
    long long producer_epoch,
    long long sequence,
    long long last_offset_delta,
    long long base_offset,
    long long now_ms,
    bint is_transactional,
)

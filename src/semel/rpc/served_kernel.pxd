cimport cython


@cython.final
cdef class SharedBuffer:
    cdef readonly memoryview buffer
    cdef readonly Py_ssize_t start
    cdef list _places
    cdef Py_ssize_t _place
    cdef list _waiting
    cpdef memoryview free(self)
    cpdef object keep(self, object answer, Py_ssize_t count)
    cpdef object settle(self)
    cpdef object move_to_front(self, Py_ssize_t start, Py_ssize_t count)


@cython.final
cdef class ReplyBatch:
    cdef object connection
    cdef list answers
    cdef object answer
    cdef readonly bint is_made


cdef class Receiving:
    cdef public object link
    cdef public object lane
    cdef public str principal
    cdef public bint was_active
    cdef public SharedBuffer _shared
    cdef public object _frame
    cdef public bytearray _held
    cdef public object _outstanding
    cdef public Py_ssize_t _most_bytes
    cdef Py_ssize_t gather(self, list answers, Py_ssize_t start, Py_ssize_t count) except -1
    cdef object send_made(self, list answers)

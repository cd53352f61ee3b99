"""Buffers that are used again."""

from semel.rpc.buffers import SpareBuffers

MEGABYTE = 1 << 20


def test_a_buffer_that_was_given_back_is_used_again():
    buffers = SpareBuffers()
    first = buffers.take(MEGABYTE)
    assert len(first) == MEGABYTE
    buffers.give_back(first)
    second = buffers.take(MEGABYTE - 5)
    assert len(second) == MEGABYTE - 5
    assert second.obj is first.obj
    assert buffers.take(MEGABYTE).obj is not first.obj


def test_spare_buffers_are_bounded_and_very_large_ones_are_not_kept():
    buffers = SpareBuffers()
    for view in [buffers.take(4 * MEGABYTE) for _ in range(10)]:
        buffers.give_back(view)
    assert buffers.spare_bytes == 16 * MEGABYTE
    buffers = SpareBuffers()
    large = buffers.take(5 * MEGABYTE)
    assert len(large) == 5 * MEGABYTE
    buffers.give_back(large)
    assert buffers.spare_bytes == 0


def test_a_small_request_takes_no_more_than_it_needs():
    buffers = SpareBuffers()
    view = buffers.take(10)
    assert len(view.obj) == 10
    buffers.give_back(view)
    assert buffers.spare_bytes == 0

"""Producers against a naive model over random operations; a replay makes the same of the log as the appends did."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from log_models import ProducersModel

from semel.log.errors import Refused
from semel.log.producers import Producers
from semel.records.batch import BatchHeader
from semel.records.control import ControlMarker, ControlType

NOW_MS = 1_700_000_000_000
LAST = 2**31 - 1

appends = st.tuples(
    st.just("append"),
    st.integers(1, 3),  # producer
    st.integers(0, 2),  # epoch, relative to the stored one less one
    st.one_of(st.just(0), st.integers(-25, 6)),  # how far from the next sequence
    st.integers(1, 4),  # records
    st.booleans(),
    st.booleans(),  # whether to begin at zero after all
    st.sampled_from((True, True, True, False)),  # whether the write works
)
markers = st.tuples(
    st.just("mark"), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2), st.booleans(), st.booleans()
)
looks = st.tuples(st.just("look"), st.integers(0, 12))
jumps = st.tuples(st.just("jump"), st.integers(1, 3), st.integers(LAST - 6, LAST))


def header(producer: int, epoch: int, sequence: int, count: int, transactional: bool, base_offset: int) -> BatchHeader:
    attributes = 0x10 if transactional else 0
    return BatchHeader(
        base_offset, 49, 0, 2, 0, attributes, count - 1, NOW_MS, NOW_MS, producer, epoch, sequence, count
    )


def state(producers: Producers) -> dict[int, Any]:
    return {
        entry.producer_id: (entry._replace(timestamp_ms=0), producers.window(entry.producer_id))
        for entry in producers.entries()
    }


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(appends, appends, appends, markers, looks, jumps), min_size=10, max_size=60))
def test_producers_agree_with_a_naive_model_and_a_replay_agrees_with_both(operations: list[Any]) -> None:
    producers, model, replayed = Producers(), ProducersModel(), Producers()
    end = 0
    for kind, *arguments in operations:
        if kind == "append":
            producer, epoch_step, distance, count, transactional, from_zero, works = arguments
            known = model.producers.get(producer)
            epoch = max(0, (known.epoch if known else 0) + epoch_step - 1)
            expected = (known.batches[-1][1] + 1) if known and known.batches else 0
            sequence = 0 if from_zero and epoch_step == 2 else (expected + distance) % (LAST + 1)
            wanted = header(producer, epoch, sequence, count, transactional, end)
            before = producers.rows(), producers.oldest_open_offset()
            try:
                draft = producers.check(wanted, end, NOW_MS)
                answer: Any = None if draft.duplicate_of is None else draft.duplicate_of.first_offset
            except Refused as refused:
                answer = refused.code
            assert (producers.rows(), producers.oldest_open_offset()) == before, "checking changes nothing"
            if answer is None and not works:
                continue
            assert answer == model.append(producer, epoch, sequence, count, transactional, end)
            if answer is None:
                producers.apply(draft)
                replayed.replay(wanted, None, NOW_MS + 5)
                end += count
        elif kind == "mark":
            producer, epoch_step, coordinator_epoch, bumps_epoch, aborted = arguments
            known = model.producers.get(producer)
            epoch = max(0, (known.epoch if known else 0) + epoch_step - 1)
            try:
                draft = producers.check_marker(producer, epoch, coordinator_epoch, NOW_MS, bumps_epoch=bumps_epoch)
                answer = None
            except Refused as refused:
                answer = refused.code
            assert answer == model.mark(producer, epoch, coordinator_epoch, bumps_epoch, end)
            if answer is None:
                ended = producers.apply_marker(draft, end, aborted)
                marker = ControlMarker(ControlType.ABORT if aborted else ControlType.COMMIT, coordinator_epoch)
                control = header(producer, epoch, -1, 1, True, end)._replace(attributes=0x30)
                assert replayed.replay(control, marker, NOW_MS + 5) == ended
                end += 1
        elif kind == "jump":
            # As if very many records had been written: so that sequences wrap.
            producer, sequence = arguments
            known = model.producers.get(producer)
            if known is None or not known.batches:
                continue
            for each in (producers, replayed):
                rows = each.rows()
                rows[producer] = rows[producer][:10] + sequence.to_bytes(4, "big") + rows[producer][14:46]
                ended_before = list(each._ended)
                each.load(rows)
                each._ended.extend(ended_before)
            _, _, first_offset, last_offset = known.batches[-1]
            first = (sequence - (last_offset - first_offset)) % (LAST + 1)
            known.batches = [(first, sequence, first_offset, last_offset)]
        else:
            (behind,) = arguments
            high_watermark = max(0, end - behind)
            model.ended = [each for each in model.ended if each[1] >= high_watermark] if behind == 0 else model.ended
            if behind == 0:
                assert producers.first_unstable_offset(high_watermark) == model.first_unstable(high_watermark)
                assert replayed.first_unstable_offset(high_watermark) == model.first_unstable(high_watermark)
        assert state(producers) == state(replayed)
        for producer, known in model.producers.items():
            assert [tuple(each) for each in reversed(producers.window(producer))] == known.window
            entry = producers.entry(producer)
            assert entry is not None
            assert entry.epoch == known.epoch
            assert entry.coordinator_epoch == known.coordinator_epoch
            assert entry.transaction_first_offset == (-1 if known.transaction is None else known.transaction)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.booleans()), max_size=40), st.data())
def test_the_first_unstable_offset_is_that_of_the_model_as_the_high_watermark_moves_up(
    operations: list[Any], data: st.DataObject
) -> None:
    producers, model = Producers(), ProducersModel()
    end = high_watermark = 0
    for producer, count, ends in operations:
        known = model.producers.get(producer)
        if ends and known is not None and known.transaction is not None:
            producers.apply_marker(producers.check_marker(producer, 0, 0, NOW_MS), end, False)
            model.mark(producer, 0, 0, False, end)
            end += 1
        else:
            sequence = (known.batches[-1][1] + 1) if known and known.batches else 0
            producers.apply(producers.check(header(producer, 0, sequence, count, True, end), end, NOW_MS))
            model.append(producer, 0, sequence, count, True, end)
            end += count
        high_watermark = data.draw(st.integers(high_watermark, end))
        assert producers.first_unstable_offset(high_watermark) == model.first_unstable(high_watermark)

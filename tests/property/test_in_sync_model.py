"""The ISR as leader and controller see it, with messages that come late or never: nobody whom the controller may elect
lacks anything that is committed. And every number agrees with one computed from the whole history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from semel.replication.in_sync import UNKNOWN, InSync, Proposal

LEADER, FOLLOWERS = 1, (2, 3, 4)
LAG_MS = 100
OLD_MS = -(1 << 50)


@dataclass(frozen=True)
class Assigned:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass
class World:
    """The truth: logs, the controller, what is under way between it and the leader."""

    least: int
    isr: tuple[int, ...]
    epoch_start: int
    now_ms: int = 1000
    end: int = 0
    flushed: int = 0
    high_watermark: int = 0
    partition_epoch: int = 5
    has: dict[int, int] = field(default_factory=dict)
    broker_epoch: dict[int, int] = field(default_factory=lambda: dict.fromkeys(FOLLOWERS, 1))
    fenced: set[int] = field(default_factory=set)
    metadata: list[Assigned] = field(default_factory=list)  # written, and not told yet
    requests: list[Proposal] = field(default_factory=list)
    answers: list[tuple[Proposal, Assigned | None]] = field(default_factory=list)
    fetches: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)  # time, offset, end of the leader

    def __post_init__(self) -> None:
        self.end = self.flushed = self.epoch_start
        self.has = dict.fromkeys(FOLLOWERS, 0) | {one: self.epoch_start for one in self.isr if one != LEADER}
        self.in_sync = InSync(LEADER, self.assigned, self.epoch_start, self.now_ms)
        self.first_isr = self.isr
        self.began_ms = self.now_ms

    @property
    def assigned(self) -> Assigned:
        return Assigned((LEADER, *FOLLOWERS), self.isr, self.partition_epoch)

    def can_join(self, node_id: int, broker_epoch: int) -> bool:
        return node_id not in self.fenced and broker_epoch == self.broker_epoch[node_id]

    # -- the leader

    def advance(self) -> None:
        found = self.in_sync.high_watermark(self.flushed, self.end, self.now_ms, LAG_MS, self.least, self.can_join)
        assert found == self.expected_high_watermark()
        self.high_watermark = max(self.high_watermark, found)

    def expected_high_watermark(self) -> int:
        in_sync = self.in_sync
        if len(in_sync.isr) < min(self.least, 4):
            return UNKNOWN
        maximal = set(in_sync.isr) | set(in_sync.proposal.isr if in_sync.proposal else ())
        offsets = [self.flushed]
        for one in FOLLOWERS:
            fetches = self.fetches.get(one, [])
            offset = fetches[-1][1] if fetches else UNKNOWN
            is_near = offset == self.end or self.now_ms - self.caught_up_ms(one) <= LAG_MS
            if one in maximal or (is_near and self.can_join(one, in_sync.followers[one].broker_epoch)):
                offsets.append(offset)
        return min(offsets)

    def caught_up_ms(self, node_id: int) -> int:
        found = self.began_ms if node_id in self.first_isr else OLD_MS
        before: tuple[int, int, int] | None = None
        for at_ms, offset, end in self.fetches.get(node_id, []):
            if offset >= end:
                found = max(found, at_ms)
            elif before is not None and offset >= before[2]:
                found = max(found, before[0])
            before = (at_ms, offset, end)
        return found

    def ask(self, isr: tuple[int, ...] | None) -> None:
        if isr is not None:
            self.requests.append(self.in_sync.propose(isr, 1))

    # -- what may happen

    def append(self, count: int) -> None:
        self.end += count

    def flush(self, count: int) -> None:
        self.flushed = min(self.end, self.flushed + count)
        self.advance()

    def fetch(self, which: int, step: int, is_old_start: bool) -> None:
        """A follower has flushed more, and asks for what comes then. Some requests were sent before its last start."""
        node_id = FOLLOWERS[which]
        if node_id in self.fenced and step % 2:
            return
        self.has[node_id] = offset = min(self.end, self.has[node_id] + step)
        epoch = self.broker_epoch[node_id] - is_old_start
        self.in_sync.note_fetch(node_id, offset, 0, self.end, epoch, self.now_ms)
        self.fetches.setdefault(node_id, []).append((self.now_ms, offset, self.end))
        if node_id not in self.in_sync.isr:
            self.ask(self.in_sync.to_join(node_id, self.high_watermark, self.can_join))
        self.advance()

    def tick(self, ms: int) -> None:
        self.now_ms += ms

    def sweep(self) -> None:
        isr = self.in_sync.to_shrink(self.end, self.now_ms, LAG_MS)
        expected = {
            one
            for one in FOLLOWERS
            if one in self.in_sync.isr
            and (self.fetches.get(one) or [(0, UNKNOWN, 0)])[-1][1] != self.end
            and self.now_ms - self.caught_up_ms(one) > LAG_MS
        }
        assert (set(self.in_sync.isr) - set(isr) if isr else set()) == (set() if self.in_sync.proposal else expected)
        self.ask(isr)
        self.advance()

    def decide(self, is_lost: bool) -> None:
        """The controller takes a request; its answer may be lost, which is not the same as a refusal."""
        if not self.requests:
            return
        asked = self.requests.pop(0)
        written: Assigned | None = None
        if asked.partition_epoch == self.partition_epoch:
            if any(one in self.fenced for one in asked.isr):
                if not is_lost:
                    self.answers.append((asked, None))
                return
            self.write(asked.isr)
            written = self.assigned
        if is_lost or written is None:  # INVALID_UPDATE_VERSION: the metadata tell
            if is_lost and self.in_sync.proposal is asked:
                self.requests.append(asked)  # sent again, the same
            return
        self.answers.append((asked, written))

    def answer(self) -> None:
        if self.answers:
            asked, written = self.answers.pop(0)
            if written is None:
                self.in_sync.withdraw(asked)
            else:
                self.in_sync.adopt(asked, written.isr, written.partition_epoch)
            self.advance()

    def write(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self.partition_epoch += 1
        self.metadata.append(self.assigned)

    def publish(self) -> None:
        if self.metadata:
            self.in_sync.follow(self.metadata.pop(0), self.now_ms)
            self.advance()

    def fence(self, which: int) -> None:
        node_id = FOLLOWERS[which]
        if node_id in self.fenced:
            self.fenced.discard(node_id)
            self.broker_epoch[node_id] += 1
        else:
            self.fenced.add(node_id)
            if node_id in self.isr:
                self.write(tuple(one for one in self.isr if one != node_id))

    # -- what must be true

    def check(self) -> None:
        for node_id in self.isr:
            has = self.flushed if node_id == LEADER else self.has[node_id]
            assert has >= self.high_watermark, f"node {node_id} may be elected and lacks what is committed"


steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("flush"), st.integers(1, 9)),
    *[st.tuples(st.just("fetch"), st.integers(0, 2), st.integers(0, 9), st.sampled_from((False,) * 5 + (True,)))] * 3,
    st.tuples(st.just("tick"), st.sampled_from((1, 30, LAG_MS, LAG_MS + 1))),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("decide"), st.booleans()),
    st.tuples(st.just("answer")),
    st.tuples(st.just("publish")),
    st.tuples(st.just("fence"), st.integers(0, 2)),
)


@settings(max_examples=400, deadline=None)
@given(
    st.integers(1, 5),
    st.sets(st.sampled_from(FOLLOWERS)),
    st.sampled_from((0, 4)),
    st.lists(steps, min_size=20, max_size=80),
)
def test_nobody_who_may_be_elected_lacks_what_is_committed(
    least: int, isr: set[int], epoch_start: int, operations: list[Any]
) -> None:
    world = World(least, (LEADER, *sorted(isr)), epoch_start)
    for name, *arguments in operations:
        getattr(world, name)(*arguments)
        world.check()

"""The life of a transactional id, as one table.

                    ┌──┐ INIT
                    │  ▼                        INIT
       (none) ──▶ EMPTY ◀───────────────────────────────────────────┬──┐
                    │ ADD                                           │  │
                    ▼                                               │  │
       ADD ┌──▶ ONGOING ──FENCE──▶ PREPARE_EPOCH_FENCE              │  │
           └────┤ │ │                      │                        │  │
                  │ └───ABORT──┐           │ ABORT                  │  │
           COMMIT │            ▼           │                        │  │
                  │     PREPARE_ABORT ◀────┘                        │  │
                  ▼            └──MARKED──▶ COMPLETE_ABORT ─────────┘  │
           PREPARE_COMMIT                      │ ADD                   │
                  └──MARKED──▶ COMPLETE_COMMIT ┼───────────────────────┘
                                    │ ADD      │
                       ONGOING ◀────┴──────────┘

EMPTY and both COMPLETE states may also EXPIRE to DEAD. A producer of the second protocol generation (KIP-890) may ABORT
from them too: it raises its epoch by ending a transaction in which it wrote nothing.
"""

from enum import Enum, IntEnum, auto


class TransactionState(IntEnum):
    """Kafka's codes, as they stand in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def commits(self) -> bool:
        """Whether the end that is decided, or carried out, is a commit."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def label(self) -> str:
        """Kafka's name for it, as ListTransactions shows it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Event(Enum):
    INIT = auto()
    ADD = auto()
    COMMIT = auto()
    ABORT = auto()
    FENCE = auto()
    MARKED = auto()
    EXPIRE = auto()


_S, _E = TransactionState, Event
MOVES: dict[tuple[TransactionState, Event], TransactionState] = {
    (_S.EMPTY, _E.INIT): _S.EMPTY,
    (_S.COMPLETE_COMMIT, _E.INIT): _S.EMPTY,
    (_S.COMPLETE_ABORT, _E.INIT): _S.EMPTY,
    (_S.EMPTY, _E.ADD): _S.ONGOING,
    (_S.ONGOING, _E.ADD): _S.ONGOING,
    (_S.COMPLETE_COMMIT, _E.ADD): _S.ONGOING,
    (_S.COMPLETE_ABORT, _E.ADD): _S.ONGOING,
    (_S.ONGOING, _E.COMMIT): _S.PREPARE_COMMIT,
    (_S.ONGOING, _E.ABORT): _S.PREPARE_ABORT,
    (_S.ONGOING, _E.FENCE): _S.PREPARE_EPOCH_FENCE,
    (_S.PREPARE_EPOCH_FENCE, _E.ABORT): _S.PREPARE_ABORT,
    (_S.EMPTY, _E.ABORT): _S.PREPARE_ABORT,
    (_S.COMPLETE_COMMIT, _E.ABORT): _S.PREPARE_ABORT,
    (_S.COMPLETE_ABORT, _E.ABORT): _S.PREPARE_ABORT,
    (_S.PREPARE_COMMIT, _E.MARKED): _S.COMPLETE_COMMIT,
    (_S.PREPARE_ABORT, _E.MARKED): _S.COMPLETE_ABORT,
    (_S.EMPTY, _E.EXPIRE): _S.DEAD,
    (_S.COMPLETE_COMMIT, _E.EXPIRE): _S.DEAD,
    (_S.COMPLETE_ABORT, _E.EXPIRE): _S.DEAD,
}


class IllegalMove(Exception):
    """A decision asked for a move that is not in the table: a mistake of ours, never the peer's."""


def moved(state: TransactionState, event: Event) -> TransactionState:
    after = MOVES.get((state, event))
    if after is None:
        raise IllegalMove(f"{event.name} is not possible in {state.name}")
    return after

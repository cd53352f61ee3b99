"""Rows that are too wide to be believed are measured again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cases import Case, Progress
from measured import Measured

WIDEST_SPREAD = 0.5
MOST_REPEATS = 2


def repeating(case: Case[Measured]) -> Case[Measured]:
    """The same case, measured again while a row of it is too wide."""

    def run(tell: Progress) -> list[Measured]:
        def again() -> list[Measured]:
            tell.expect(case.steps)
            return case.run(tell)

        return steady(case.run(tell), again, tell.say)

    return Case(case.name, case.steps, run)


def steady(
    rows: Sequence[Measured], again: Callable[[], Sequence[Measured]], say: Callable[[str], None]
) -> list[Measured]:
    """Each row as it is, or the narrowest of its measurements where its spread was over 50 %.

    `again` measures all of them once more, in the same order. Narrowest, not best: what is compared has no say in it.
    """
    found = list(rows)
    for _ in range(MOST_REPEATS):
        wide = [place for place, row in enumerate(found) if row.widest > WIDEST_SPREAD]
        if not wide:
            break
        names = [f"{found[place].name} (spread {found[place].widest:.0%})" for place in wide]
        say(f"measuring again: {', '.join(names)}")
        repeated = again()
        for place in wide:
            narrower = min(found[place], repeated[place], key=lambda row: row.widest)
            found[place] = narrower._replace(times=found[place].times + 1)
    return found

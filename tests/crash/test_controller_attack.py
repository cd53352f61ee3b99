"""A few kills and pauses of controllers; `make controllers` has many."""

from __future__ import annotations

import pytest
from controller_attack import attack


@pytest.mark.alone
def test_changes_and_records_outlive_controllers() -> None:
    done, wrong = attack(faults=3, seed=1)
    assert not wrong
    assert done["create"]
    assert done["records acknowledged"]

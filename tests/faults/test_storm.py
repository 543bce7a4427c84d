"""Clients and the server are killed and cut off from each other at random, while they work; then the accounts are made.

``python -m tests.faults --hours H --seed N`` does the same for longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.ledger import CHANNELS
from tests.faults.storm import Storm

FAULTS = 15
PAUSE = 0.5
LONGEST = 1.5


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [67])  # whose first fifteen faults are of all kinds
def test_no_message_is_lost_and_none_is_doubled_in_a_transaction(seed: int, tmp_path: Path) -> None:
    report = Storm(seed, tmp_path).run(pause=PAUSE, longest=LONGEST, faults=FAULTS)
    assert report.is_right, (
        f"python -m tests.faults --hours {report.seconds / 3600:.4f} --pause {PAUSE} --longest {LONGEST} "
        f"--seed {seed}\n{report}"
    )
    assert report.faults.total() == FAULTS
    for account in report.accounts:
        assert account.done, f"nothing came through {account.channel}"
    assert {account.channel for account in report.accounts} == CHANNELS.keys()

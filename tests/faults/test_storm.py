"""Clients and the server are killed and cut off from each other at random, while they work; then the accounts are made.

``python -m tests.faults --hours H --seed N`` does the same for longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.ledger import CHANNELS
from tests.faults.storm import Storm

SECONDS = 20.0
PAUSE = 0.8


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1])
def test_no_message_is_lost_and_none_is_doubled_in_a_transaction(seed: int, tmp_path: Path) -> None:
    report = Storm(seed, tmp_path).run(SECONDS, PAUSE)
    assert report.is_right, (
        f"python -m tests.faults --hours {SECONDS / 3600:.4f} --pause {PAUSE} --seed {seed}\n{report}"
    )
    assert report.faults.total() > 0
    for account in report.accounts:
        assert account.done, f"nothing came through {account.channel}"
    assert {account.channel for account in report.accounts} == CHANNELS.keys()

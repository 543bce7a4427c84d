"""The bookkeeping of transactions that may still have messages below a consumer's bounds."""

from __future__ import annotations

import pytest

from jmsql.store.receiving.late_messages import LateMessages, Snapshot

LOWEST = [0] * 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10:10:+10", Snapshot(frozenset(), 10, own=10)),
        ("10:14:10,12+14", Snapshot(frozenset({10, 12}), 14, own=14)),
        (
            "10:12:10+15",
            Snapshot(frozenset({10, 12, 13, 14}), 15, own=15),
        ),  # three have begun and not ended, beyond the last end
        ("10:12:10-15", Snapshot(frozenset({10, 15}), 12, is_exact=False, own=15)),
        ("10:12:-", Snapshot(frozenset(), 12, is_exact=False)),
        ("10:12:+9012", Snapshot(frozenset(), 12, is_exact=False, own=9012)),  # too many numbers to remember each
    ],
)
def test_snapshot_tells_which_transactions_run(text: str, expected: Snapshot) -> None:
    assert Snapshot.parse(text) == expected


def started(late: LateMessages) -> tuple[str | None, str | None, str | None]:
    return late.start(LOWEST)[1:]


def test_each_transaction_is_remembered_with_the_end_of_the_scan_before_it_began() -> None:
    late = LateMessages(100)
    late.passed(Snapshot(frozenset({7}), 8), 200)
    late.passed(Snapshot(frozenset({7, 9}), 10), 300)
    assert started(late) == ("{7,9}", "{100,200}", None)
    assert late.lowest(Snapshot(frozenset({7}), 12)) == 200
    assert late.lowest(None) == 100
    late.passed(Snapshot(frozenset({7}), 12), 400)
    assert started(late) == ("{7}", "{100}", None)
    late.passed(Snapshot(frozenset({13}), 14), 400)
    assert not late.is_any, "what the last one sends lies above all that was passed"
    late.passed(Snapshot(frozenset({13}), 14), 500)
    assert started(late) == ("{13}", "{400}", None)


def test_scan_that_knows_no_end_of_the_given_numbers_keeps_the_last_place_that_was_known() -> None:
    late = LateMessages(100)
    late.passed(Snapshot(frozenset({7}), 8, is_exact=False), 200)
    assert started(late) == ("{7}", "{100,100}", "8")
    assert late.lowest(Snapshot(frozenset({7}), 8, is_exact=False)) is None
    assert late.lowest(Snapshot(frozenset({7}), 9, is_exact=False)) == 100
    late.passed(Snapshot(frozenset({11}), 12), 300)
    assert started(late) == ("{11}", "{100}", None)

"""What overviews by age remember: which windows of queues are looked at again, and which queues come first."""

from __future__ import annotations

from jmsql.store.administration.overview import Ages, AgesOfWindow, Memory


def seen(*moments: float) -> Ages:
    """Windows of 1,400 queues that were looked at so many seconds after the start."""
    ages = Ages(50)
    for number, moment in enumerate(moments):
        ages.saw(AgesOfWindow(1400 * number, 1400 * (number + 1), moment, [(1400 * number + 1, 100 - number)]))
    return ages


def test_two_windows_are_looked_at_again_in_turn() -> None:
    ages = seen(1.0, 1.0, 1.0, 1.0, 1.0)
    turns = []
    for moment in (16.0, 31.0, 46.0):
        overdue = ages.overdue(moment)
        turns.append([window.after // 1400 for window in overdue])
        for window in overdue:
            ages.saw(window._replace(seen_at=moment))
    assert turns == [[0, 1], [2, 3], [4, 0]]


def test_all_that_were_not_looked_at_for_two_minutes_are() -> None:
    assert [window.after // 1400 for window in seen(50.0, 1.0, 100.0, 2.0, 3.0).overdue(124.0)] == [1, 3, 4]


def test_the_oldest_of_all_windows_and_of_those_behind_them_come_first() -> None:
    ages = seen(1.0, 1.0, 1.0)
    ages.rest = [(4300, 97), (4301, 99)]
    assert ages.end == 4200
    assert ages.first(3) == [4300, 2801, 4301]


def test_an_overview_of_other_destinations_begins_again() -> None:
    memory = Memory()
    ages = memory.ages("orders.%", None, 50)
    assert memory.ages("orders.%", None, 50) is ages
    assert memory.ages(None, None, 50) is not ages
    assert memory.ages("orders.%", None, 50) is not ages


def test_a_shorter_overview_goes_on_and_a_longer_one_begins_again() -> None:
    memory = Memory()
    ages = memory.ages(None, "queue", 50)
    assert memory.ages(None, "queue", 20) is ages
    assert memory.ages(None, "queue", 51) is not ages

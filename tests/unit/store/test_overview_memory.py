"""The memory of overviews by age and by depth: windows of queues, and numbers of messages."""

from __future__ import annotations

from jmsql.store.administration.overview import Memory, OverviewOrder, Window, Windows

AGE = OverviewOrder.age


def seen(*moments: float) -> Windows:
    """Windows of 1,400 queues that were looked at so many seconds after the start."""
    windows = Windows(50)
    for number, moment in enumerate(moments):
        windows.saw(Window(1400 * number, 1400 * (number + 1), moment, [(1400 * number + 1, 100 - number)]))
    return windows


def test_two_windows_are_looked_at_again_in_turn() -> None:
    windows = seen(1.0, 1.0, 1.0, 1.0, 1.0)
    turns = []
    for moment in (16.0, 31.0, 46.0):
        overdue = windows.overdue(moment, 2)
        turns.append([window.after // 1400 for window in overdue])
        for window in overdue:
            windows.saw(window._replace(seen_at=moment))
    assert turns == [[0, 1], [2, 3], [4, 0]]


def test_all_that_were_not_looked_at_for_two_minutes_are() -> None:
    assert [window.after // 1400 for window in seen(50.0, 1.0, 100.0, 2.0, 3.0).overdue(124.0, 2)] == [1, 3, 4]


def test_facts_are_those_of_all_windows_and_of_the_queues_behind_them() -> None:
    windows = seen(1.0, 1.0, 1.0)
    windows.rest = [(4300, 97), (4301, 99)]
    assert windows.end == 4200
    assert sorted(windows.facts) == [(1, 100), (1401, 99), (2801, 98), (4300, 97), (4301, 99)]


def test_an_overview_of_other_destinations_begins_again() -> None:
    memory = Memory()
    windows = memory.windows(AGE, "orders.%", None, 50)
    assert memory.windows(AGE, "orders.%", None, 50) is windows
    assert memory.windows(AGE, None, None, 50) is not windows
    assert memory.windows(AGE, "orders.%", None, 50) is not windows


def test_a_shorter_overview_goes_on_and_a_longer_one_begins_again() -> None:
    memory = Memory()
    windows = memory.windows(AGE, None, "queue", 50)
    assert memory.windows(AGE, None, "queue", 20) is windows
    assert memory.windows(AGE, None, "queue", 51) is not windows


def test_orders_do_not_disturb_each_other() -> None:
    memory = Memory()
    windows = memory.windows(AGE, None, None, 50)
    assert memory.windows(OverviewOrder.depth, None, None, 50) is not windows
    assert memory.windows(AGE, None, None, 50) is windows


def test_numbers_of_messages_are_forgotten_after_two_minutes() -> None:
    memory = Memory()
    assert memory.depths(1.0, {1: 10, 2: 20}) == {1: 10, 2: 20}
    assert memory.depths(100.0, {2: 30}) == {1: 10, 2: 30}
    assert memory.depths(122.0) == {2: 30}

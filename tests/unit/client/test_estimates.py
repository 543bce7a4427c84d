"""A consumer's estimates: how many messages to fetch, if there are any, and how long to ignore notifications."""

from __future__ import annotations

import pytest

from jmsql.client.receiving.emptiness import READY, BackOff, Emptiness
from jmsql.client.receiving.fetching import BatchSize

MIB = 1024 * 1024
DOUBLED = [1, 2, 4, 8, 16, 32]
"""63 messages."""


def run(*steps: str | tuple[float, int]) -> list[int]:
    """Return how many messages each fetch asks for.

    Args:
        steps: For a fetch, how many seconds the consumer then works on its messages, and the size of each. "end" ends
            the transaction, "empty" is a fetch that finds nothing, "few" one that finds two, "wait" ten seconds.
    """
    batch, now, limits = BatchSize(0.25), 100.0, []
    for step in steps:
        if step == "end":
            batch = batch.after_transaction(now)
        elif step == "empty":
            batch = batch.after_fetch(now, 0, 0)
        elif step == "few":
            batch = batch.after_fetch(now, 2, 400)
        elif step == "wait":
            now += 10.0
        else:
            assert not isinstance(step, str)
            seconds, size = step
            limit, batch = batch.next(now)
            limits.append(limit)
            batch = batch.after_fetch(now, limit, limit * size)
            now += seconds
    return limits


FAST, LARGE, SLOW = (0.001, 200), (0.001, 5 * MIB), (10.0, 200)


@pytest.mark.parametrize(
    ("steps", "limits"),
    [
        pytest.param([FAST] * 9, [*DOUBLED, 64, 100, 100], id="begins with one and doubles"),
        pytest.param([FAST] * 9 + [SLOW, FAST], [*DOUBLED, 64, 100, 100, 100, 2], id="a quarter of a second of work"),
        pytest.param([(1.0, 200)] * 3, [1, 1, 1], id="one a second"),
        pytest.param([LARGE] * 5, [1, 2, 3, 3, 3], id="16 MiB"),
        pytest.param([FAST] * 6 + ["end", FAST], [*DOUBLED, 63], id="as many as the last transaction"),
        pytest.param(
            [FAST] * 6 + ["end", "few", "empty", "end", FAST], [*DOUBLED, 63], id="an empty queue lowers nothing"
        ),
        pytest.param([FAST] * 9 + ["empty", "wait", FAST], [*DOUBLED, 64, 100, 100, 100], id="waiting is no work"),
        pytest.param([FAST] * 6 + ["end", "wait", FAST], [*DOUBLED, 63], id="a pause between transactions is no work"),
        pytest.param([FAST] * 6 + [SLOW, "end", FAST], [*DOUBLED, 64, 1], id="a slow transaction"),
        pytest.param([FAST] * 3 + ["end", "end", FAST], [1, 2, 4, 7], id="a transaction without messages"),
    ],
)
def test_batch_sizes(steps: list[str | tuple[float, int]], limits: list[int]) -> None:
    assert run(*steps) == limits


def test_dropped_messages_count_for_no_transaction() -> None:
    batch = BatchSize(0.25).after_fetch(100.0, 10, 2000)
    assert batch.without(4).after_transaction(100.1).expected == 6
    assert batch.without(10).after_transaction(100.1) == batch.without(10)
    assert batch.without(11).used == 0


def test_a_slow_handler_fetches_fewer() -> None:
    batch = BatchSize(0.25).after_fetch(100.0, 10, 2000)
    assert batch.slower(7).next(100.001)[0] == 6
    assert batch.slower(20).previous == 1


@pytest.mark.parametrize(
    ("was_full", "has_seen_end", "questions", "expected"),
    [
        (True, False, 0, Emptiness(True, 3, 0, 5.0)),
        (False, False, 0, Emptiness(False, 3, 0, 5.0)),
        (True, False, 4, Emptiness(True, 3, 3, 5.0)),
        (True, True, 4, Emptiness(False, 4, 8, 5.0)),
        (False, True, 0, Emptiness(False, 4, 8, 5.0)),
    ],
)
def test_a_fetch_tells_of_the_next(*, was_full: bool, has_seen_end: bool, questions: int, expected: Emptiness) -> None:
    before = Emptiness(ends_seen=3, questions=questions, next_question=5.0)
    assert before.after_fetch(was_full=was_full, has_seen_end=has_seen_end) == expected


@pytest.mark.parametrize(
    ("estimate", "now", "asks"),
    [
        (Emptiness(), 100.0, False),
        (Emptiness(questions=1), 100.0, True),
        (Emptiness(questions=1).after_question(100.0, 0.5), 109.9, False),
        (Emptiness(questions=1).after_question(100.0, 0.5), 110.0, True),
        (Emptiness(questions=0).after_question(100.0, 0.5), 110.0, False),
    ],
)
def test_questions_for_the_end_take_a_share_of_the_time(*, estimate: Emptiness, now: float, asks: bool) -> None:
    assert estimate.asks(now) is asks


def test_the_back_off_doubles_with_each_lost_race() -> None:
    back_off, remaining = READY, []
    for _ in range(20):
        back_off = back_off.after_loss(1.0)
        remaining.append(round(back_off.remaining(1.0), 3))
    assert remaining[:7] == [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.064]
    assert max(remaining) == 0.064
    assert READY.remaining(1.0) <= 0
    assert BackOff(1, 2.0).remaining(3.0) < 0

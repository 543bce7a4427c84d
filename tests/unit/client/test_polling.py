"""How long consumers wait before they look by themselves."""

from __future__ import annotations

import pytest

from jmsql.client.pacing import PollInterval
from jmsql.timings import InternalTimings


@pytest.fixture
def poll() -> PollInterval:
    return PollInterval(InternalTimings(minimum_poll_interval=0.05, maximum_poll_interval=1.0))


def test_pauses_grow_until_something_happens(poll: PollInterval) -> None:
    pauses = [poll.next() for _ in range(6)]
    assert pauses == [pytest.approx(pause, rel=0.21) for pause in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)]
    assert poll.is_longest
    poll.reset()
    assert poll.next() == pytest.approx(0.05, rel=0.21)


@pytest.mark.parametrize(("queues", "pause"), [(1, 0.05), (10, 0.05), (100, 0.5), (200, 1.0), (1000, 1.0)])
def test_pauses_are_longer_where_many_queues_are_waited_for(poll: PollInterval, queues: int, pause: float) -> None:
    poll.stretch(queues)
    assert poll.is_longest == (queues >= 200)
    assert poll.next() == pytest.approx(pause, rel=0.21)


def test_a_pause_that_is_long_already_stays_so(poll: PollInterval) -> None:
    poll.next()
    poll.stretch(1)
    assert poll.next() == pytest.approx(0.1, rel=0.21)

"""Redelivery policies: what they allow, and the delays that they make."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jmsql import InvalidDestinationException, RedeliveryPolicy
from jmsql.values.policies import MOST_ERRORS, delay_after_error


def test_delays_grow_up_to_the_longest() -> None:
    policy = RedeliveryPolicy(delay=0.5, multiplier=3.0, maximum_delay=timedelta(seconds=10))
    assert [policy.delay_after(failures) for failures in range(1, 6)] == [0.5, 1.5, 4.5, 10.0, 10.0]
    assert policy.delay_after(1_000_000) == 10.0


def test_delays_stay_finite() -> None:
    assert RedeliveryPolicy(delay=1.0, multiplier=10.0).delay_after(1_000_000) < 4e9
    assert RedeliveryPolicy(multiplier=10.0).delay_after(1_000_000) == 0.0


def test_jitter_moves_delays_by_its_share() -> None:
    policy = RedeliveryPolicy(delay=10.0, jitter=0.2)
    delays = [policy.delay_after(1) for _ in range(200)]
    assert all(8.0 <= delay <= 12.0 for delay in delays)
    assert len(set(delays)) > 100


def test_deliveries_are_exhausted_at_the_maximum() -> None:
    policy = RedeliveryPolicy(maximum_deliveries=3)
    assert [policy.is_exhausted(failures) for failures in range(5)] == [False, False, False, True, True]
    assert not RedeliveryPolicy().is_exhausted(1_000_000)


def test_without_a_policy_the_first_redelivery_after_an_error_is_at_once() -> None:
    assert [delay_after_error(errors) for errors in (1, 2, 3, 6, 100)] == [0.0, 0.1, 0.5, 60.0, 9000.0]
    assert 22 * 3600 < sum(delay_after_error(errors) for errors in range(1, MOST_ERRORS)) < 26 * 3600


def test_a_policy_is_a_value() -> None:
    policy = RedeliveryPolicy(3, timedelta(minutes=1), 2.0, 3600, 0.1, "dead")
    assert policy == RedeliveryPolicy(3, 60.0, 2.0, 3600.0, 0.1, "dead")
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert len({policy, RedeliveryPolicy(3, 60.0, 2.0, 3600.0, 0.1, "dead")}) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"maximum_deliveries": 0}, ValueError, "at least 1, or None for any number, not 0"),
        ({"maximum_deliveries": 2.5}, TypeError, "an int or None, not 2.5"),
        ({"maximum_deliveries": True}, TypeError, "an int or None, not True"),
        ({"delay": -1}, ValueError, "delay is a number of seconds"),
        ({"delay": "1"}, TypeError, "delay is a number of seconds or a timedelta"),
        ({"delay": datetime(2026, 11, 29, tzinfo=UTC)}, TypeError, r"Subtract now from it: moment - datetime\.now"),
        ({"delay": float("nan")}, ValueError, "delay is a number of seconds"),
        ({"multiplier": 0.5}, ValueError, "delays do not become shorter"),
        ({"multiplier": float("inf")}, ValueError, "multiplier is at least 1"),
        ({"multiplier": None}, TypeError, "multiplier is a number"),
        ({"jitter": 1.5}, ValueError, "jitter must be between 0 and 1"),
        ({"delay": 5, "maximum_delay": 1}, ValueError, "maximum_delay, 1 s, is less than delay, 5 s"),
        ({"dead_letter_queue": "dead"}, ValueError, "Nothing would come to the dead-letter queue 'dead'"),
        ({"maximum_deliveries": 1, "dead_letter_queue": ""}, InvalidDestinationException, "at least one character"),
    ],
)
def test_values_out_of_bounds_are_refused_with_the_reason(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        RedeliveryPolicy(**arguments)

"""The intervals and time-outs of a client: their bounds, and what is kept of them."""

from __future__ import annotations

import dataclasses
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from jmsql import ConnectionFactory, Timings
from jmsql.timings import InternalTimings, complete, from_differences

PUBLIC = [field.name for field in dataclasses.fields(Timings)]
FIELDS = [field.name for field in dataclasses.fields(InternalTimings)]
RELIABILITY = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 366 * 86_400])
def test_a_value_out_of_bounds_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is .* seconds"):
        InternalTimings(**{name: value})  # type: ignore[arg-type] # some are whole numbers


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", ["1", None, True])
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} is a number of seconds"):
        InternalTimings(**{name: value})


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({"connect_timeout": 1}, "connect_timeout is a whole number of seconds, at least 2"),
        ({"keepalives_idle": 1.5}, "keepalives_idle is a whole number of seconds, at least 1"),
        ({"minimum_poll_interval": 2}, "minimum_poll_interval, 2 s, is more than maximum_poll_interval, 1 s"),
        ({"maximum_reconnect_delay": 0.01}, "minimum_reconnect_delay, 0.1 s, is more than maximum_reconnect_delay"),
        ({"heartbeat_timeout": 5}, "heartbeat_timeout, 5 s, is less than 2 times heartbeat_interval, 3 s.*lower"),
        (
            {"heartbeat_timeout": 1, "heartbeat_interval": 0.1},
            "heartbeat_timeout, 1 s, is less than 2 times maintenance_interval, 1 s",
        ),
        ({"lease_duration": 1.9}, "lease_duration, 1.9 s, is less than 2 times maintenance_interval, 1 s"),
        ({"lease_duration": 4}, "lock_timeout, 4 s, is not less than lease_duration, 4 s.*Lower lock_timeout"),
        ({"idle_in_transaction_timeout": 5}, "idle_in_transaction_timeout, 5 s, is not less than lease_duration"),
        ({"lease_duration": 6}, "lease_duration is at most 5 s, not 6 s.*count on that"),
        ({"maintenance_interval": 2}, "maintenance_interval is at most 1 s, not 2 s"),
    ],
)
def test_values_that_contradict_each_other_are_refused(values: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        InternalTimings(**values)


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({"connect_timeout": 1}, "connect_timeout is a whole number of seconds, at least 2"),
        ({"minimum_poll_interval": 2}, "minimum_poll_interval, 2 s, is more than maximum_poll_interval, 1 s"),
        ({"heartbeat_timeout": 1.9}, "heartbeat_timeout is at least 2 s, not 1.9 s: one late heartbeat"),
        ({"heartbeat_timeout": 16}, "heartbeat_timeout is at most 15 s, not 16 s.*count on that"),
    ],
)
def test_timings_are_checked(values: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        Timings(**values)


def test_a_client_completes_the_users_timings() -> None:
    assert complete(Timings()) == InternalTimings()
    timings = complete(Timings(heartbeat_timeout=2, maximum_reconnect_delay=0.05, idle_connection_timeout=9))
    assert (timings.heartbeat_interval, timings.minimum_reconnect_delay, timings.idle_connection_timeout) == (
        0.4,
        0.05,
        9,
    )
    assert complete(timings) is timings


def test_it_is_a_value() -> None:
    timings = Timings(tcp_user_timeout=2, prefetch_duration=3)
    assert timings == Timings(tcp_user_timeout=2.0, prefetch_duration=3.0)
    assert timings != Timings()
    assert hash(timings) == hash(pickle.loads(pickle.dumps(timings)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        timings.prefetch_duration = 1.0  # type: ignore[misc]


def test_it_shows_and_keeps_differences_from_the_defaults() -> None:
    assert repr(Timings()) == "Timings()"
    timings = Timings(prefetch_duration=2.0, connect_timeout=3)
    assert repr(timings) == "Timings(connect_timeout=3, prefetch_duration=2.0)"
    assert timings.differences() == {"connect_timeout": 3, "prefetch_duration": 2.0}
    assert from_differences(timings.differences()) == timings
    with pytest.raises(ValueError, match="Timings have no other, sweep"):
        from_differences({"sweep": 1, "other": 2})


def test_internal_timings_are_kept_too() -> None:
    timings = InternalTimings(sweep_interval=2.0, connect_timeout=3)
    assert repr(timings) == "InternalTimings(connect_timeout=3, sweep_interval=2.0)"
    assert from_differences(timings.differences()) == timings


def test_it_is_part_of_a_factory() -> None:
    factory = ConnectionFactory("postgresql://app@db/shop", timings=Timings(prefetch_duration=2.0))
    assert pickle.loads(pickle.dumps(factory)) == factory
    assert factory != ConnectionFactory("postgresql://app@db/shop")
    assert "timings" not in repr(factory)


def test_the_documentation_lists_all_of_them_with_their_defaults() -> None:
    rows = [line.split("|") for line in RELIABILITY.read_text().splitlines() if line.startswith("| `")]
    listed = {row[1].strip(" `"): row[2].strip() for row in rows}
    defaults = {name: f"{getattr(Timings(), name):g}" for name in PUBLIC}
    assert {name: listed.get(name) for name in FIELDS} == {**dict.fromkeys(FIELDS), **defaults}

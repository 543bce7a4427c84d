"""The transitions of a transaction, as a table without holes that matter."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsql.client.transaction_state import (
    LOST_STATES,
    TRANSITIONS,
    WORKING_STATES,
    TransactionEvent,
    TransactionState,
)

EVENTS = st.lists(st.sampled_from(TransactionEvent))


def walk(events: list[TransactionEvent]) -> list[TransactionState]:
    """Return the states that follow each event, without the events that cannot occur."""
    states = [TransactionState.NONE]
    for event in events:
        if event in TRANSITIONS[states[-1]]:
            states.append(TRANSITIONS[states[-1]][event])
    return states


def test_every_state_has_a_way_to_the_end() -> None:
    assert set(TRANSITIONS) == set(TransactionState)
    assert all(TRANSITIONS[state][TransactionEvent.END] is TransactionState.NONE for state in TransactionState)


def test_an_application_can_do_anything_in_every_state() -> None:
    # They are the application's to choose, at any time; the session's own events are guarded by its calls.
    application = [event for event in TransactionEvent if event.name.startswith("APPLICATION")]
    for state in TransactionState:
        assert set(TRANSITIONS[state]) >= {*application, TransactionEvent.SESSION_RELIES, TransactionEvent.VANISH}


@given(events=EVENTS)
def test_lost_work_stays_lost_until_the_end(events: list[TransactionEvent]) -> None:
    states = walk(events)
    for state, following in itertools.pairwise(states):
        assert state not in LOST_STATES or following in {state, TransactionState.NONE}


@given(events=EVENTS)
def test_work_goes_by_a_commit_a_loss_or_the_end_alone(events: list[TransactionEvent]) -> None:
    states = walk(events)
    for state, following in itertools.pairwise(states):
        if state in WORKING_STATES:
            ends = WORKING_STATES | LOST_STATES | {TransactionState.COMMITTED, TransactionState.NONE}
            assert following in ends
        # "rolled back" would deny the part that was committed
        if state in {TransactionState.COMMITTED, TransactionState.CONTINUED}:
            assert following is not TransactionState.ROLLED_BACK


def test_an_event_that_cannot_occur_raises() -> None:
    with pytest.raises(KeyError):
        TRANSITIONS[TransactionState.NONE][TransactionEvent.OPEN]

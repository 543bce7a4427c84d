"""The duty to end calls whose messages were cancelled or claims lost: its notifications, and the server's answers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from jmsql.exceptions import JMSException
from jmsql.store.control.cancellations import Cancellations, cancelled_message
from jmsql.store.rows.message_rows import MessageKey


class Server:
    """Knows which claims are lost."""

    def __init__(self) -> None:
        self.lost: list[int] = []
        self.there: set[int] = set()
        self.asked: list[str] = []

    def run(self, query: Any) -> list[tuple[int, bool]]:
        self.asked.append(query.parameters["sequences"])
        return [(number, number in self.there) for number in self.lost]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def cancellations() -> Cancellations:
    return Cancellations(lambda: None, 5.0)


def key(sequence: int) -> MessageKey:
    return MessageKey(1, 5, sequence)


def test_a_notification_of_another_s_message_asks_nothing(cancellations: Cancellations, server: Server) -> None:
    ended: list[int] = []
    cancellations.watch(key(1), 7, lambda **_: ended.append(1))
    cancellations.hear(2)
    cancellations.run(server)  # type: ignore[arg-type]
    assert (server.asked, ended, list(cancellations.heard)) == ([], [], [2])
    assert cancellations.seconds_to_next() == math.inf


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_call_ends_if_the_server_says_that_its_claim_is_gone(
    cancellations: Cancellations, server: Server, is_lost: bool
) -> None:
    ended: list[int] = []
    for sequence in (1, 2):
        cancellations.watch(key(sequence), 7, lambda sequence=sequence, **_: ended.append(sequence))
    server.lost = [2] if is_lost else []
    cancellations.hear(2)
    assert cancellations.seconds_to_next() == 0.0
    cancellations.run(server)  # type: ignore[arg-type]
    assert server.asked == ["{1,2}"]
    assert ended == ([2] if is_lost else [])
    cancellations.run(server)  # type: ignore[arg-type]
    assert len(server.asked) == 1


def test_a_new_connection_asks_for_missed_cancellations(cancellations: Cancellations, server: Server) -> None:
    cancellations.reset(is_deaf=False)
    cancellations.run(server)  # type: ignore[arg-type]
    cancellations.watch(key(1), 7, lambda **_: None)
    cancellations.reset(is_deaf=False)
    cancellations.run(server)  # type: ignore[arg-type]
    assert server.asked == ["{1}"]


def test_where_nothing_is_heard_the_server_is_asked_again_and_again(
    cancellations: Cancellations, server: Server
) -> None:
    cancellations.reset(is_deaf=True)
    cancellations.run(server)  # type: ignore[arg-type]
    assert server.asked == []
    assert 0.0 < cancellations.seconds_to_next() <= 5.0
    cancellations.watch(key(1), 7, lambda **_: None)
    cancellations.missed()
    cancellations.run(server)  # type: ignore[arg-type]
    assert server.asked == ["{1}"]
    assert 0.0 < cancellations.seconds_to_next() <= 5.0


def test_the_server_is_asked_again_if_the_question_fails(
    cancellations: Cancellations, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> list[int]:
        raise JMSException("no lock was granted within the time limit", "55P03")

    cancellations.watch(key(1), 7, lambda **_: None)
    cancellations.hear(1)
    monkeypatch.setattr(server, "run", refuse)
    with pytest.raises(JMSException):
        cancellations.run(server)  # type: ignore[arg-type]
    assert 0.0 < cancellations.seconds_to_next() <= 5.0


def test_a_call_that_begins_after_the_notification_is_ended(cancellations: Cancellations, server: Server) -> None:
    """A session had taken the message from those that it holds."""
    cancellations.hear(1)
    ended: list[int] = []
    cancellations.watch(key(1), 7, lambda **_: ended.append(1))
    server.lost = [1]
    cancellations.run(server)  # type: ignore[arg-type]
    assert ended == [1]


def test_an_error_of_one_call_ends_no_other(cancellations: Cancellations, server: Server) -> None:
    ended: list[int] = []

    def fail(**_: bool) -> None:
        raise RuntimeError("its event loop is closed")

    cancellations.watch(key(1), 7, fail)
    cancellations.watch(key(2), 7, lambda **_: ended.append(2))
    server.lost = [1, 2]
    cancellations.hear(1)
    cancellations.run(server)  # type: ignore[arg-type]
    assert ended == [2]


def test_a_lost_claim_is_told_from_a_cancellation_by_its_message(cancellations: Cancellations, server: Server) -> None:
    ended: list[bool] = []

    def end(*, is_claim_lost: bool) -> None:
        ended.append(is_claim_lost)

    for sequence in (1, 2):
        cancellations.watch(key(sequence), 7, end)
    server.lost, server.there = [1, 2], {2}
    cancellations.hear(1)
    cancellations.run(server)  # type: ignore[arg-type]
    assert ended == [False, True]


def test_few_cancelled_messages_are_remembered(cancellations: Cancellations) -> None:
    for sequence in range(5000):
        cancellations.hear(sequence)
    assert 4999 in cancellations.heard
    assert 0 not in cancellations.heard
    cancellations.forget(4999)
    assert 4999 not in cancellations.heard


@pytest.mark.parametrize(
    ("payload", "sequence"),
    [("cancelled 5", 5), ("cancelled", None), ("cancelled -5", None), ("5", None), ("cancelled 5 6", None), ("", None)],
)
def test_only_a_payload_of_that_form_is_a_cancellation(payload: str, sequence: int | None) -> None:
    assert cancelled_message(payload) == sequence

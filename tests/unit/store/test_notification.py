"""Notifications, which any role can forge: only what a client could have written is believed."""

from __future__ import annotations

import pytest

from jmsql.store.rows.message_rows import GroupKey, MessageKey
from jmsql.store.sending.notification import Notification, combine

GENUINE = [
    Notification(7),
    Notification(0),
    Notification(-3),
    Notification(7, GroupKey(7, -(2**63))),
    Notification(7, MessageKey(7, 9, 2**63 - 1)),
    Notification(7, MessageKey(7, 0, 0)),
]


@pytest.mark.parametrize("notification", GENUINE)
def test_a_written_notification_can_be_read(notification: Notification) -> None:
    assert Notification.parse(notification.payload()) == notification


@pytest.mark.parametrize(
    "payload",
    [
        "",
        " ",
        "x",
        "7 ",
        " 7",
        "7\n",
        "7  5",
        "7 0 1 2",
        "7 x",
        "7 0 x",
        "+7",
        "1_0",
        "٣",
        "\uff17",
        "1.0",
        "NaN",
        "2147483648",
        "-2147483649",
        "9" * 5000,
        "7 9223372036854775808",
        "7 -9223372036854775809",
        "7 10 1",
        "7 -1 1",
        "7 0 -1",
        "7 0 9223372036854775808",
        "\x01\x02\x7f",
        "🐇",
        "7; drop table message",
    ],
)
def test_payloads_that_no_client_writes_are_ignored(payload: str) -> None:
    assert Notification.parse(payload) is None


def test_many_groups_are_told_of_by_their_queues() -> None:
    groups = {Notification(queue, GroupKey(queue, group)) for queue in (1, 2) for group in range(11)}
    released = Notification(3, MessageKey(3, 5, 99))
    assert set(combine(groups | {released})) == {Notification(1), Notification(2), released}
    assert set(combine([released, released, *list(groups)[:20]])) == {released, *list(groups)[:20]}

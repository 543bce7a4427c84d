"""Methods of transactions on a session without: refused (JMS 1.1 chapter 7.3)."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, IllegalStateException, Queue
from jmsql.testing import receive_all
from tests.texts import send_texts, texts_of

WITHOUT_TRANSACTIONS = pytest.mark.parametrize(
    "mode", [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK]
)


@pytest.mark.requirement("session.commit.IllegalStateException")
@pytest.mark.case("session-not-transacted-01")
@WITHOUT_TRANSACTIONS
def test_it_is_not_committed(connection: Connection, queue: Queue, mode: AcknowledgeMode) -> None:
    session = connection.create_session(mode)
    send_texts(session, queue, "a")
    with pytest.raises(IllegalStateException, match=mode.name):
        session.commit()
    assert texts_of(receive_all(session.create_consumer(queue))) == ["a"]


@pytest.mark.requirement("session.rollback.IllegalStateException")
@pytest.mark.case("session-not-transacted-02")
@WITHOUT_TRANSACTIONS
def test_it_is_not_rolled_back(connection: Connection, queue: Queue, mode: AcknowledgeMode) -> None:
    session = connection.create_session(mode)
    send_texts(session, queue, "a")
    with pytest.raises(IllegalStateException, match=mode.name):
        session.rollback()
    assert texts_of(receive_all(session.create_consumer(queue))) == ["a"]

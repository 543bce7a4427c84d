"""Session.recover on a transacted session: refused."""

from __future__ import annotations

import pytest

from jmsql import Connection, IllegalStateException
from jmsql.testing import receive_all
from tests.compliance.places import Place
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection")


@pytest.mark.requirement("session.recover.IllegalStateException")
@pytest.mark.case("session-transacted-recover-01")
def test_transacted_session_is_not_recovered(connection: Connection, place: Place) -> None:
    session = connection.create_session(transacted=True)
    with pytest.raises(IllegalStateException, match="rollback"):
        session.recover()
    send_texts(session, place.destination, "a", "b")
    consumer = place.consumer(session)
    assert receive_texts(consumer, 1) == ["a"]
    with pytest.raises(IllegalStateException, match="rollback"):
        session.recover()
    assert texts_of(receive_all(consumer)) == ["b"]

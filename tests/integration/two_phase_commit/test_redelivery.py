"""Global transactions on destinations with redelivery policies."""

from __future__ import annotations

import pytest

from jmsql import Queue, Session
from jmsql.admin import Administration
from jmsql.xa import XASession
from tests.integration.client.server import Server
from tests.integration.two_phase_commit.global_transactions import XID
from tests.texts import receive, send_texts


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_the_last_delivery_ends_well_or_in_the_dead_letter_queue(
    xa_session: XASession,
    others: Session,
    queue: Queue,
    server: Server,
    jmsql_clean_url: str,
    *,
    prepare: bool,
    commit: bool,
) -> None:
    with Administration(jmsql_clean_url) as administration:
        administration.create_queue(queue.name, maximum_deliveries=1)
        send_texts(others, queue, "a")
        xa_session.tpc_begin(XID)
        receive(xa_session.create_consumer(queue))
        if prepare:
            xa_session.tpc_prepare()
        if commit:
            xa_session.tpc_commit()
        else:
            xa_session.tpc_rollback()
        dead = [letter.body for letter in administration.dead_letters()]
    assert dead == ([] if commit else ["a"])
    assert server.rows("select count(*) from jmsql_internal.message") == [(len(dead),)]
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]

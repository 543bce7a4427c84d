"""Sessions inside a larger transaction, which alone ends it: JMS 1.1 chapter 7.3."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

import jmsql
from jmsql import ConnectionFactory, JMSContext, Queue, TransactionInProgressException
from tests.compliance.apis import THREADS_ALONE
from tests.texts import texts_left


@pytest.mark.requirement("session.transactions.transactioninprogress")
@THREADS_ALONE
@pytest.mark.parametrize("end", [JMSContext.commit, JMSContext.rollback])
def test_session_does_not_end_the_transaction_that_it_is_part_of(
    jmsql_factory: ConnectionFactory, queue: Queue, end: Callable[[JMSContext], None]
) -> None:
    url = str(jmsql_factory.url).replace("postgresql+psycopg://", "postgresql://", 1)
    assert texts_left(jmsql_factory, queue) == []  # and the queue is there: nobody waits for who makes it
    with psycopg.connect(url) as transaction:
        context = jmsql.enlist(transaction, schema=jmsql_factory.schema)
        context.create_producer().send(queue, "a")
        with pytest.raises(TransactionInProgressException, match="your transaction"):
            end(context)
        assert transaction.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
        assert texts_left(jmsql_factory, queue) == []
        transaction.commit()
    assert texts_left(jmsql_factory, queue) == ["a"]

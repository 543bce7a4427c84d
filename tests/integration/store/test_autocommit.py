from __future__ import annotations

import pytest

from jmsql.client._sync.link.opening import open_runner
from jmsql.exceptions import JMSException
from jmsql.store.statement import Statement, value

PROCESS = Statement("process", "select pg_backend_pid()", "asking", value(int))
TERMINATE = Statement("terminate", "select pg_terminate_backend(%(process)s, 10000)", "asking", value(bool))


def test_connection_that_the_server_has_ended_closes_without_an_error(jmsql_url: str) -> None:
    with open_runner(jmsql_url, "jmsql") as runner, open_runner(jmsql_url, "jmsql") as other:
        process = runner.run(PROCESS.bind())
        assert other.run(TERMINATE.bind(process=process))
        with pytest.raises(JMSException, match="the server closed the connection"):
            runner.run(PROCESS.bind())
    assert runner.connection.closed

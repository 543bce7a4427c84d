"""What every exception of the client's has to say."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
import sqlalchemy

from jmsql import JMSException

SECRET = "s3cr3t-m4rk3r"
"""A password, which nothing may show."""


def refused(call: Callable[[], object], kind: type[JMSException], code: str | None, advice: str) -> None:
    """Make a call that fails, and see that its exception says everything and shows no password."""
    with pytest.raises(JMSException, match=advice) as failure:
        call()
    assert type(failure.value) is kind
    assert failure.value.error_code == code
    cause: BaseException | None = failure.value
    while isinstance(cause, JMSException):
        assert SECRET not in str(cause)
        cause, last = cause.linked_exception, cause
        assert cause is None or isinstance(cause, JMSException | psycopg.Error | sqlalchemy.exc.SQLAlchemyError), last

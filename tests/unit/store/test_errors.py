"""The errors of statements whose answer did not come."""

from __future__ import annotations

import pytest

from jmsql import JMSException
from jmsql.store.errors import with_unknown_outcome


@pytest.mark.parametrize("code", ["08006", "08003", "08P01"])
def test_a_connection_that_breaks_leaves_the_outcome_open(code: str) -> None:
    """The last one is PgBouncer's, when the server behind it has gone."""
    error = with_unknown_outcome(JMSException("It was lost.", code), "Look.")
    assert error.error_code == "08007"
    assert str(error).endswith("it may have taken effect. Look.")


@pytest.mark.parametrize("code", ["08001", "08004", "08007", "57P01", "23505", None])
def test_other_errors_say_the_outcome_themselves(code: str | None) -> None:
    error = JMSException("No.", code)
    assert with_unknown_outcome(error, "Look.") is error

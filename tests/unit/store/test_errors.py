"""The errors of statements whose answer did not come."""

from __future__ import annotations

import pytest

from jmsql import JMSException, JMSSecurityException, ResourceAllocationException
from jmsql.store.errors import from_sqlstate, with_unknown_outcome


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


@pytest.mark.parametrize(
    ("reported", "kind", "code", "advice"),
    [
        ('FATAL:  role "shop" is not permitted to log in', JMSSecurityException, "28000", "needs LOGIN"),
        ('FATAL:  permission denied for database "shop"', JMSSecurityException, "28000", "CONNECT to the database"),
        ("FATAL:  connection requires a valid client certificate", JMSSecurityException, "28000", "the certificate"),
        (
            'FATAL:  database "shop" is not currently accepting connections',
            ResourceAllocationException,
            "08001",
            "the server answers, and refuses",
        ),
        ("server does not support SSL, but SSL was required", ResourceAllocationException, "08001", "sslmode"),
        ("SSL error: certificate verify failed", ResourceAllocationException, "08001", "sslrootcert"),
        ('root certificate file "/ca.crt" does not exist', ResourceAllocationException, "08001", "sslrootcert"),
        ('server certificate for "db" does not match host name "db2"', ResourceAllocationException, "08001", "sslmode"),
        ('could not load private key file "/shop.key": bad decrypt', ResourceAllocationException, "08001", "sslkey"),
        ("channel binding required, but SSL not in use", ResourceAllocationException, "08001", "channel_binding"),
        ("Connection refused", ResourceAllocationException, "08001", "cannot be reached"),
        ("SSL SYSCALL error: EOF detected", ResourceAllocationException, "08001", "cannot be reached"),
    ],
)
def test_a_refused_connection_is_not_taken_for_a_server_that_cannot_be_reached(
    reported: str, kind: type[JMSException], code: str, advice: str
) -> None:
    detail = f'connection failed: connection to server at "127.0.0.1", port 5432 failed: {reported}'
    error = from_sqlstate(None, detail, "connecting")
    assert (type(error), error.error_code) == (kind, code)
    assert advice in str(error)
    assert ("cannot be reached" in str(error)) == (advice == "cannot be reached")

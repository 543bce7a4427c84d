"""Errors of a process or pooler that has no connection left."""

from __future__ import annotations

import errno
import os

import psycopg
import pytest

from jmsql import ResourceAllocationException
from jmsql.store.connections.engine import _Connecting
from jmsql.store.errors import from_sqlstate, translate


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "ulimit -n"),
        (
            psycopg.OperationalError("connection failed: FATAL:  no more connections allowed (max_client_conn)"),
            "control_url",
        ),
    ],
)
def test_process_or_pooler_without_a_connection_left_is_a_lack_of_resources(error: Exception, advice: str) -> None:
    def connect() -> None:
        raise error

    with pytest.raises(psycopg.OperationalError) as raised:
        _Connecting(1.0).connect(connect)
    translated = translate(raised.value, "connecting")
    assert isinstance(translated, ResourceAllocationException)
    assert advice in str(translated)


def test_client_that_is_being_registered_again_is_told_to_try_once_more() -> None:
    refused = 'table "subscriber" violates foreign key constraint "subscriber_connection_id_fkey"'
    error = from_sqlstate("23503", refused, "subscribing")
    assert isinstance(error, ResourceAllocationException)
    assert "try once more" in str(error)
    assert "registered" not in str(from_sqlstate("23503", 'constraint "parts_id_fkey"', "committing"))

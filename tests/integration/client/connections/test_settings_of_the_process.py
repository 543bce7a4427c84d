"""An application's settings for its whole process do not change jmsql's own statements."""

from __future__ import annotations

import pytest

from tests.forked import ForkedProcess
from tests.integration.client.connections.process_settings import SETTINGS, use


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_application_may_change_psycopg_and_sqlalchemy_for_its_process(jmsql_clean_url: str, setting: str) -> None:
    process = ForkedProcess(use, jmsql_clean_url, setting)
    assert process.read_line() == "all is well\n"

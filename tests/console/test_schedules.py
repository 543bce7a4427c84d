"""The page of schedules: what it shows, and what visitors can do there."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import quote

import pytest

import jmsql
from jmsql.admin import Administration
from tests.console.conftest import BOB
from tests.console.http import Browsing
from tests.console.serving import Served


def test_schedules_are_shown_paused_resumed_and_sent(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, caplog: pytest.LogCaptureFixture
) -> None:
    assert "There are no schedules." in console.get("/schedules").text
    with Administration(jmsql_factory) as administration:
        administration.set_schedule("nightly report", "0 3 * * *", "reports", "go", time_zone="Europe/Berlin")
        administration.set_schedule("<b>hostile</b> & 'co'", timedelta(hours=2), "topic://news")
        text = console.get("/schedules").text
        assert "<b>" not in text
        assert "0 3 * * *" in text
        assert "Europe/Berlin" in text
        assert "every 2:00:00" in text
        administration.set_schedule("often", timedelta(seconds=10), "reports")
        assert "every 0:00:10" in console.get("/schedules").text
        name = f"name={quote('nightly report')}"
        with caplog.at_level(logging.INFO, "jmsql.console"):
            assert console.act("/schedules/pause", name) == "The schedule nightly report is paused."
            assert administration.schedule("nightly report").paused
            assert "Resume …" in console.get("/schedules?live=1").text
            assert console.act("/schedules/resume", name) == "The schedule nightly report goes on."
            assert "1 message was sent: ID:" in console.act("/schedules/send", name)
        records = [json.loads(record.message) for record in caplog.records if record.name == "jmsql.console"]
        assert [(each["action"], each["destination"], each["outcome"]) for each in records] == [
            (f"{action} schedule nightly report", "queue://reports", "done") for action in ("pause", "resume", "send")
        ]
        assert administration.schedule("nightly report").sent == 1
    other = f"name={quote(chr(60) + 'b>hostile</b> & ' + chr(39) + 'co' + chr(39))}"
    assert "1 message was sent" in console.act("/schedules/send", other)


def test_an_unknown_schedule_is_not_found(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with Administration(jmsql_factory) as administration:
        administration.set_schedule("nightly", "0 3 * * *", "reports")
    for path in ("/schedules/pause", "/schedules/pause?name=other", "/schedules/delete?name=nightly"):
        assert console.get(path).status == 404
    assert console.get("/schedules/pause?name=%00").status in (400, 404)


def test_a_visitor_who_may_only_look_is_offered_no_action(
    serve: Callable[..., Served], jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.set_schedule("nightly", "0 3 * * *", "reports")
        console = Browsing(serve(access=lambda _: BOB))
        text = console.get("/schedules").text
        assert "nightly" in text
        assert "Pause" not in text
        assert console.get("/schedules/pause?name=nightly").status == 403

"""What a worker's processes are told."""

from __future__ import annotations

import pytest

from jmsql import ConnectionFactory
from jmsql.worker.logs import LogFormat
from jmsql.worker.settings import Settings
from jmsql.worker.timings import WorkerTimings

OWN = ConnectionFactory("postgresql://own/shop", schema="own", control_url="postgresql://own/control")


def test_settings_pass_through_text() -> None:
    timings = WorkerTimings(report_interval=0.1)
    settings = Settings(
        *("shop:app", True, "other", LogFormat.json),
        concurrency=4,
        drain_timeout=5.0,
        warn_transaction_after=1.5,
        timings=timings,
        only=("orders,mail*",),
        without=("reports",),
    )
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("settings", "of_application", "expected"),
    [
        (Settings("shop:app"), None, ConnectionFactory()),
        (Settings("shop:app"), OWN, OWN),
        (Settings("shop:app", database_named=True), OWN, ConnectionFactory(schema="own")),
        (
            Settings("shop:app", schema="other"),
            OWN,
            ConnectionFactory("postgresql://own/shop", schema="other", control_url="postgresql://own/control"),
        ),
    ],
    ids=["nothing said", "the application's", "the database named", "the schema named"],
)
def test_the_command_line_goes_before_the_application(
    settings: Settings, of_application: ConnectionFactory | None, expected: ConnectionFactory
) -> None:
    assert settings.factory(of_application) == expected

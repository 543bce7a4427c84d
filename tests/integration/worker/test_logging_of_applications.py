"""Applications that configure logging: failures of handlers are logged all the same, and the options hold."""

from __future__ import annotations

import json
import logging

import pytest

from jmsql import ConnectionFactory
from jmsql.worker import Application
from tests.integration.worker.conftest import StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send

CONFIGURED = """
import logging.config

logging.config.dictConfig({{
    "version": 1,
    "handlers": {{"console": {{"class": "logging.StreamHandler", "formatter": "own", "level": "INFO"}}}},
    "formatters": {{"own": {{"format": "OWN %(levelname)s %(name)s %(message)s"}}}},
    {configuration}
}})


@app.listener("orders", redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=2))
def handle(message, database):
    logging.getLogger("shop").info("called")
    if message.delivery_count == 1:
        raise ValueError("first")
    store(database, message)
"""


DISABLING = '"root": {"handlers": ["console"], "level": "WARNING"}'
TOGETHER = '"disable_existing_loggers": False, "root": {"handlers": ["console"], "level": "INFO"}'
APART = '"loggers": {"jmsql": {"handlers": ["console"], "propagate": False}}, "root": {"handlers": ["console"]}'
OPTIONS = ("--log-format", "json", "--log-level", "debug")


@pytest.mark.parametrize(
    ("configuration", "options"), [(DISABLING, ()), (DISABLING, OPTIONS), (TOGETHER, OPTIONS), (APART, OPTIONS)]
)
def test_failures_are_logged_and_options_hold(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    configuration: str,
    options: tuple[str, ...],
) -> None:
    worker = start_worker(CONFIGURED.format(configuration=configuration), *options)
    send(jmsql_factory, "orders", "a")
    database.wait_until_handled(1)
    assert worker.stop() == 0
    lines = worker.log.splitlines()
    if options:
        records = [json.loads(line) for line in lines]
        messages = [(record["level"], record["message"].partition(" on ")[0]) for record in records]
        assert messages.count(("ERROR", "messaging.handle")) == 1
        assert messages.count(("DEBUG", "messaging.handle")) == 1
        assert messages.count(("INFO", "called")) == 2
    else:
        assert len([line for line in lines if line.startswith("OWN ERROR jmsql.worker messaging.handle")]) == 1
        assert "DEBUG" not in worker.log


async def test_an_application_of_asyncio_has_its_failures_logged(jmsql_factory: ConnectionFactory) -> None:
    app = Application(jmsql_factory)
    logger = logging.getLogger("jmsql.worker")
    logger.disabled = True
    async with app.running():
        assert not logger.disabled

"""Workers of applications that are made of parts."""

from __future__ import annotations

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send, texts_in

PARTS = """
from jmsql.worker import Router

mail, reports = Router(), Router()


@mail.listener("letters")
def post(message, database):
    store(database, message)


@reports.listener("reports")
async def write(message): ...


app.include(mail, prefix="mail.")
app.include(reports)
"""


def test_a_worker_handles_messages_of_the_chosen_destinations_alone(
    jmsql_factory: ConnectionFactory, start_worker: StartWorker, database: WorkerDatabase
) -> None:
    send(jmsql_factory, "reports", "left")
    send(jmsql_factory, "mail.letters", "posted")
    worker = start_worker(PARTS, "--only", "orders,mail.*,reports", "--except", "rep*")
    assert worker.exit_code() == 2
    assert "No listener has the destination --only 'orders'. They have queue://mail.letters" in worker.log
    worker = start_worker(PARTS, "--only", "mail.*,reports", "--except", "rep*")
    worker.wait_until_ready()
    wait_for(database.handled, PATIENCE)
    assert worker.stop() == 0
    assert "messaging.write" not in worker.log
    assert database.handled() == [("posted", 1)]
    assert texts_in(jmsql_factory, "reports") == ["left"]

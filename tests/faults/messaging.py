"""What `jmsql worker` does under faults."""

from __future__ import annotations

import os

import sqlalchemy

import jmsql
from jmsql.worker import Application
from tests.faults.work import DONE

app = Application()


@app.listener("jobs", redelivery=jmsql.RedeliveryPolicy())
def do(message: jmsql.Message, database: sqlalchemy.Connection) -> None:
    """Write the row."""
    row = {"channel": "jobs", "number": message.get_body(str), "client": f"worker {os.getpid()}"}
    database.execute(DONE, row)

"""Asks for the report of a month, and writes to customers who wait for it."""

import sys

import jmsql
from examples.celery_shop.tasks import Letter, report, write_to

with jmsql.ConnectionFactory().create_connection() as connection:
    write_to.send_many(connection, [Letter(address, "The report is on its way.") for address in sys.argv[2:]])
    print(jmsql.result(connection, report.send(connection, sys.argv[1])).get(timeout=30))

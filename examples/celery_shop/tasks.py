"""The tasks: letters, which are tried again, and reports, whose results are kept."""

from dataclasses import dataclass

import jmsql
from examples.celery_shop import stand_ins
from jmsql.worker import Application, Reject, RetryAfter

app = Application()


@dataclass
class Letter:
    """A letter to a customer."""

    address: str
    text: str


@app.listener("mail", redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=6, delay=2, multiplier=2, jitter=0.1))
def write_to(letter: Letter) -> None:
    """Write to a customer."""
    if "@" not in letter.address:
        raise Reject(f"{letter.address} is no address")
    try:
        stand_ins.deliver(letter.address, letter.text)
    except stand_ins.Busy as busy:
        raise RetryAfter(busy.seconds) from busy


@app.listener("reports", timeout=60, keep_result=86400)
def report(month: str) -> dict[str, int]:
    """Add up the orders of a month."""
    try:
        return stand_ins.add_up(month)
    except TimeoutError:
        stand_ins.discard(month)
        raise

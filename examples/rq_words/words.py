"""The job: count the words of a file."""

from pathlib import Path

import jmsql
from jmsql.worker import Application


def tell(message: jmsql.Message, error: BaseException) -> None:
    """Tell of a file that could not be counted."""
    print(f"{message.get_body(str)} has failed: {error}")


app = Application(on_dead_letter=tell)


@app.listener("words", keep_result=3600, timeout=30, redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=3))
def count_words(path: str) -> int:
    """Count the words of a file."""
    return len(Path(path).read_text().split())

from __future__ import annotations

import pytest

from jmsql import JMSException, Queue
from jmsql.spark.options import OPTIONS, Options
from jmsql.spark.schema import read_schema


def test_names_of_options_are_read_in_any_letter_case() -> None:
    options = Options.read({"QUEUE": "orders", "maxmessagespertrigger": "100", "failOnDataLoss": "FALSE"})
    assert (options.queue, options.maximum_messages, options.fail_on_data_loss) == (Queue("orders"), 100, False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"queue": ""}, "Option 'queue'"),
        ({"queue": "a", "topic": "b"}, "'queue' or option 'topic'"),
        ({"subscription": "s"}, "'subscription' needs option 'topic'"),
        ({"queue": "a", "clientId": "c"}, "'clientId' needs option 'subscription'"),
        ({"queue": "a", "partitions": "0"}, "'partitions' is a whole number from 1 on, not '0'"),
        ({"queue": "a", "partitions": "two"}, "'partitions' is a whole number"),
        ({"queue": "a", "maxBytesPerTrigger": "1e6"}, "'maxBytesPerTrigger' is a whole number"),
        ({"queue": "a", "snapshotTimeout": "-1"}, "'snapshotTimeout' is a number of seconds"),
        ({"queue": "a", "snapshotTimeout": "soon"}, "'snapshotTimeout' is a number of seconds"),
        ({"queue": "a", "startingOffsets": "yesterday"}, "'startingOffsets' is earliest, latest, a time"),
        ({"queue": "a", "startingOffsets": "2026-11-21T08:00:00"}, "'startingOffsets': .* has no time zone"),
        ({"queue": "a", "failOnDataLoss": "1"}, "'failOnDataLoss' is true or false"),
        ({"queue": "a", "selector": "a = = 1"}, "Option 'selector'"),
        ({"queue": "a", "colums": "b"}, "did you mean 'columns'"),
        ({"queue": "a", "zzz": "b"}, "there are: queue, topic"),
        ({"path": "orders"}, r"load\(\) or save\(\)"),
        ({"queue": "a", "url": "mysql://db/shop"}, "postgresql://"),
        ({"queue": "a", "url": "postgresql://db/shop?password=p"}, "'url' holds a password"),
        ({"queue": "a", "url": "postgresql://db/shop", "connection": "shop"}, "'connection' or option 'url'"),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, str], words: str) -> None:
    with pytest.raises(JMSException, match=words):
        Options.read(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"columns": "sequence, colour"}, "'columns': there is no column 'colour'"),
        ({"columns": "body"}, "needs option 'bodySchema'"),
        ({"columns": "type,type"}, "names a column twice"),
    ],
)
def test_columns_are_checked(given: dict[str, str], words: str) -> None:
    with pytest.raises(JMSException, match=words):
        read_schema(Options.read(given))


def test_every_option_is_documented() -> None:
    from pathlib import Path

    page = Path(__file__).parents[3].joinpath("docs/spark.md").read_text()
    assert [name for name in OPTIONS if f"| `{name}` |" not in page] == []

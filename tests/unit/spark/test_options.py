from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType

from jmsql import JMSException, Queue
from jmsql.spark.columns.schema import check_read_schema, check_written_schema, read_schema
from jmsql.spark.options import OPTIONS, Options, Use
from tests.unit.spark.test_arrow import PROPERTIES

TYPED = PROPERTIES["properties"].dataType


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
        ({"queue": "a", "partitions": "99999999999"}, "'partitions' is at most 2,147,483,647, not '99999999999'"),
        ({"queue": "a", "minPartitions": "9" * 5000}, "'minPartitions' is at most 2,147,483,647"),
        ({"queue": "a", "maxMessagesPerTrigger": str(2**63)}, "'maxMessagesPerTrigger' is at most 9,223,372"),
        ({"queue": "a", "writeIdDays": "9999999999"}, "'writeIdDays' is at most 1,000,000"),
        ({"queue": "a", "maxBytesPerTrigger": "1e6"}, "'maxBytesPerTrigger' is a whole number"),
        ({"queue": "a", "snapshotTimeout": "-1"}, "'snapshotTimeout' is a number of seconds"),
        ({"queue": "a", "snapshotTimeout": "soon"}, "'snapshotTimeout' is a number of seconds"),
        ({"queue": "a", "startingOffsets": "yesterday"}, "'startingOffsets' is earliest, latest, a time"),
        ({"queue": "a", "startingOffsets": "2026-11-21T08:00:00"}, "'startingOffsets': .* has no time zone"),
        (
            {"queue": "a", "endingOffsets": "2026-11-21T08:00:00+00:00"},
            "'endingOffsets' needs option 'history'.*JMSTimestamp < 1795248000000",
        ),
        ({"queue": "a", "queryTimeout": "-1"}, "'queryTimeout' is a number of seconds, not '-1'"),
        ({"queue": "a", "queryTimeout": "1e9"}, "'queryTimeout' is at most 2,000,000 seconds, not '1e9'"),
        ({"history": "true", "endingOffsets": "earliest"}, "'endingOffsets' is latest, or a time"),
        ({"history": "true", "endingOffsets": "2026-11-21"}, "'endingOffsets': .* has no time zone"),
        ({"history": "true", "startingOffsets": "yesterday"}, "'startingOffsets' is earliest, latest, or a time"),
        ({"history": "true", "startingOffsets": "ID:1"}, "'startingOffsets': the history begins where"),
        (
            {
                "history": "true",
                "startingOffsets": "2026-11-21T08:00:00+00:00",
                "endingOffsets": "2026-11-21T08:59:59+01:00",
            },
            "'endingOffsets': 2026-11-21T08:59:59.01:00 is before",
        ),
        ({"history": "yes"}, "'history' is true or false"),
        ({"history": "true", "writeId": "w"}, "'writeId' is for writes"),
        ({"queue": "a", "writeIdDays": "0"}, "'writeIdDays' is a whole number from 1 on"),
        ({"queue": "a", "failOnDataLoss": "1"}, "'failOnDataLoss' is true or false"),
        ({"queue": "a", "properties": "csv"}, "'properties' is json or map, not 'csv'"),
        ({"queue": "a", "selector": "a = = 1"}, "Option 'selector'"),
        ({"queue": "a", "colums": "b"}, "did you mean 'columns'"),
        ({"queue": "a", "maxOffsetsPerTrigger": "10"}, "did you mean 'maxMessagesPerTrigger'"),
        ({"queue": "a", "numPartitions": "10"}, "did you mean 'partitions'"),
        ({"queue": "a", "startingTimestamp": "1"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "a"}, "did you mean 'queue'"),
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
    ("given", "use", "words"),
    [
        (
            {"queue": "a", "selector": "b = 1"},
            Use.WRITE,
            "'selector' has no meaning for a write; it is for a batch read",
        ),
        ({"queue": "a", "properties": "map"}, Use.WRITE, "'properties' has no meaning for a write"),
        ({"topic": "a", "subscription": "b"}, Use.WRITE, "'subscription' has no meaning for a write"),
        (
            {"queue": "a", "writeId": "b"},
            Use.BATCH_READ,
            "'writeId' has no meaning for a batch read; it is for a write",
        ),
        ({"queue": "a", "writeIdDays": "1"}, Use.STREAM_READ, "'writeIdDays' has no meaning"),
        ({"queue": "a", "maxMessagesPerTrigger": "1"}, Use.BATCH_READ, "'maxMessagesPerTrigger' has no meaning"),
        ({"queue": "a", "startingOffsets": "latest"}, Use.BATCH_READ, "'startingOffsets' has no meaning"),
        ({"queue": "a", "failOnDataLoss": "true"}, Use.BATCH_READ, "'failOnDataLoss' has no meaning"),
        ({"queue": "a", "snapshotTimeout": "1"}, Use.STREAM_READ, "'snapshotTimeout' has no meaning"),
    ],
)
def test_options_that_have_no_meaning_are_refused_by_name(given: dict[str, str], use: Use, words: str) -> None:
    with pytest.raises(JMSException, match=words):
        Options.read(given).require_use(use)


def test_options_that_are_for_all_are_taken() -> None:
    for use in Use:
        Options.read({"queue": "a", "connection": "b", "jmsqlSchema": "c", "checkpointLocation": "d"}).require_use(use)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"columns": "sequence, colour"}, "'columns': there is no column 'colour'"),
        ({"columns": "body"}, "needs option 'bodySchema'"),
        ({"columns": "type,type"}, "names a column twice"),
        ({"columns": "outcome"}, "needs option 'history'"),
        ({"columns": "property_types", "properties": "map"}, "there is no column 'property_types'"),
    ],
)
def test_columns_are_checked(given: dict[str, str], words: str) -> None:
    with pytest.raises(JMSException, match=words):
        read_schema(Options.read(given))


def test_properties_are_text_or_a_map_as_the_option_or_else_the_schema_says() -> None:
    text, typed, strings = (
        StructType([StructField("text_body", StringType()), StructField("properties", kind)])
        for kind in (StringType(), TYPED, MapType(StringType(), StringType()))
    )
    types = StructField("property_types", StringType())
    for schema in (text, typed):
        check_read_schema(schema, Options.read({"queue": "a"}))
        check_written_schema(schema, Options.read({"queue": "a"}), overwrite=False)
    for schema, given in ((text, "map"), (typed, "json")):
        with pytest.raises(JMSException, match="The column 'properties' is read as"):
            check_read_schema(schema, Options.read({"queue": "a", "properties": given}))
    check_written_schema(StructType([*text, types]), Options.read({"queue": "a"}), overwrite=False)
    for schema in (typed, strings):
        with pytest.raises(JMSException, match="'property_types' goes with properties as JSON text"):
            check_written_schema(StructType([*schema, types]), Options.read({"queue": "a"}), overwrite=False)
    assert "property_types string" in read_schema(Options.read({"queue": "a"}))
    assert "property_types" not in read_schema(Options.read({"queue": "a", "properties": "MAP"}))


def test_map_of_other_values_is_refused_with_the_types_that_there_are() -> None:
    schema = StructType([StructField("properties", MapType(StringType(), IntegerType()))])
    with pytest.raises(
        JMSException, match=r"as map<string,string> or as map<string,struct<type:string.*not as map<string,int>"
    ):
        check_written_schema(schema, Options.read({"queue": "a"}), overwrite=False)


def test_history_has_columns_of_its_own_and_needs_no_destination() -> None:
    options = Options.read({"history": "true", "bodySchema": "n INT"})
    options.require_source()
    names = [column.split(" ")[0] for column in read_schema(options).split(", ")]
    assert names[-9:] == [
        "acknowledged_at",
        "outcome",
        "subscription",
        "subscription_client_id",
        "connection_id",
        "client_id",
        "user_name",
        "transaction_id",
        "body",
    ]


def test_batch_read_of_the_history_from_its_end_on_is_refused() -> None:
    from jmsql.spark.reading.batch_reader import HistoryReader

    with pytest.raises(JMSException, match="'startingOffsets': a batch read of the history from 'latest' on is empty"):
        HistoryReader(Options.read({"history": "true", "startingOffsets": "latest"}), StructType())


def test_history_is_not_written() -> None:
    with pytest.raises(JMSException, match="Option 'history' is for reads"):
        check_written_schema(StructType(), Options.read({"queue": "a", "history": "true"}), overwrite=False)


def test_every_option_is_documented() -> None:
    from pathlib import Path

    page = Path(__file__).parents[3].joinpath("docs/spark.md").read_text()
    assert [name for name in OPTIONS if f"| `{name}` |" not in page] == []

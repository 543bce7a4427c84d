"""The columns of messages that reads return, and that writes take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from jmsql import JMSException
from jmsql.spark.columns.arrow import BODY, Shaper
from jmsql.spark.columns.expressions import COLUMNS, HISTORY_COLUMNS
from jmsql.spark.options import ADVICE_ON_TABLES, Options, PropertyFormat, Use, table_comment

_PROPERTY = "struct<type:string,boolean:boolean,long:bigint,double:double,string:string>"

TYPED_PROPERTIES = f"map<string,{_PROPERTY}>"
"""The type of the column `properties` where it is a map of typed values."""

_PARSED = (BooleanType, DateType, NumericType, StringType, TimestampNTZType, TimestampType)
"""The types of Spark into which a body's JSON is parsed, beside arrays and structs of them."""


def read_schema(options: Options, table: Mapping[str, str] | None = None) -> str:
    """Return the schema that a read has by itself, as DDL, which keeps the options of a table that is made.

    Raises:
        JMSException: Option 'columns' names a column that does not exist, or names one twice.
    """
    readable = _readable(options, options.properties)
    known = readable if options.body_schema is None else {**readable, BODY: f"struct<{options.body_schema}>"}
    names = options.columns or tuple(known)
    for name in names:
        if name not in known:
            missing = "bodySchema" if name == BODY else "history" if name in HISTORY_COLUMNS else None
            needs = "" if missing is None else f" (it needs option '{missing}')"
            raise JMSException(f"Option 'columns': there is no column {name!r}{needs}; there are: {_listed(readable)}.")
    if len(set(names)) < len(names):
        raise JMSException("Option 'columns' names a column twice.")
    columns = [f"{name} {known[name]}" for name in names]
    if table is not None:
        columns[0] += f" {table_comment(table)}"
    return ", ".join(columns)


def shaper(schema: StructType, options: Options) -> Shaper:
    """Return a function that makes batches of a Spark schema from rows."""
    destination = options.destination
    return Shaper(to_arrow_schema(schema, timezone="UTC"), None if destination is None else destination.uri)


def check_read_schema(schema: StructType, options: Options) -> None:
    """Make sure that a read can return a schema, which the user may have given.

    Raises:
        JMSException: A column does not exist or has another type.
    """
    properties = options.properties
    if _has_maps(schema) and "properties" not in options.given:
        properties = PropertyFormat.map
    readable = _readable(options, properties)
    _require_single(schema, "The schema")
    for field in schema.fields:
        if field.name == BODY:
            if not isinstance(field.dataType, StructType):
                raise JMSException("The schema of the column 'body' is a struct.")
            _require_parsed(field.dataType)
            _require_single(field.dataType, "Option 'bodySchema'")
            continue
        _check(field.name, field.dataType.simpleString(), readable, "read")


def check_written_schema(schema: StructType, options: Options, *, overwrite: bool) -> None:
    """Make sure that rows of a schema can be written.

    Raises:
        JMSException: A column does not exist or has another type, no column or option names a destination, or the mode
            is to replace messages, or an option is not for writes.
    """
    if options.history:
        raise JMSException("Option 'history' is for reads: messages enter the history when they leave a destination.")
    options.require_use(Use.WRITE)
    if overwrite:
        raise JMSException("Messages are added to a destination and replace nothing: use mode('append').")
    for field in schema.fields:
        if field.name == "properties" and isinstance(field.dataType, MapType):
            values = field.dataType.valueType
            is_typed = isinstance(values, StructType) and values.simpleString() == _PROPERTY
            if is_typed or isinstance(values, StringType):
                continue
            raise JMSException(
                f"The column 'properties' is written as string (a JSON object), as map<string,string> or as "
                f"{TYPED_PROPERTIES}, not as {field.dataType.simpleString()}."
            )
        _check(field.name, field.dataType.simpleString(), COLUMNS, "written")
    if _has_maps(schema) and "property_types" in schema.fieldNames():
        raise JMSException("The column 'property_types' goes with properties as JSON text; a map tells their types.")
    if options.destination is None and "destination" not in schema.fieldNames():
        raise JMSException(
            f"Say where the messages go: option 'queue', option 'topic', or a column 'destination'. {ADVICE_ON_TABLES}"
        )


def _require_parsed(schema: DataType) -> None:
    """Make sure that a body's JSON is parsed into values of these types."""
    if isinstance(schema, ArrayType):
        _require_parsed(schema.elementType)
    elif isinstance(schema, StructType):
        for field in schema.fields:
            _require_parsed(field.dataType)
    elif not isinstance(schema, _PARSED):
        raise JMSException(
            f"Option 'bodySchema': JSON is not parsed into {schema.simpleString().upper()}. Read the text or JSON body "
            "as it is, and convert it in Spark, as from_json, parse_json and cast do."
        )


def _require_single(schema: DataType, where: str) -> None:
    """Make sure that no struct has two fields of the same name, of which Arrow makes no batch."""
    if isinstance(schema, ArrayType):
        _require_single(schema.elementType, where)
    if isinstance(schema, StructType):
        for field in schema.fields:
            if schema.fieldNames().count(field.name) > 1:
                raise JMSException(f"{where} names the column {field.name!r} twice.")
            _require_single(field.dataType, where)


def _check(name: str, kind: str, known: dict[str, str], doing: str) -> None:
    if name not in known:
        raise JMSException(f"The column {name!r} cannot be {doing}; there are: {_listed(known)}.")
    if kind != known[name]:
        raise JMSException(f"The column {name!r} is {doing} as {known[name]}, not as {kind}.")


def _has_maps(schema: StructType) -> bool:
    return any(field.name == "properties" and isinstance(field.dataType, MapType) for field in schema.fields)


def _readable(options: Options, properties: PropertyFormat) -> dict[str, str]:
    columns = HISTORY_COLUMNS if options.history else COLUMNS
    if properties is PropertyFormat.json:
        return columns
    typed = {**columns, "properties": TYPED_PROPERTIES}
    del typed["property_types"]  # a map tells all of them
    return typed


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)

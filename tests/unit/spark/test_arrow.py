from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType

from jmsql.spark.arrow import Shaper
from jmsql.spark.outgoing import Staging
from tests.unit.spark.test_outgoing import PROPERTY

PROPERTIES = StructType(
    [
        StructField(
            "properties",
            MapType(
                StringType(),
                StructType.fromJson(
                    {
                        "type": "struct",
                        "fields": [
                            {"name": name, "type": kind, "nullable": True, "metadata": {}}
                            for name, kind in (
                                ("type", "string"),
                                ("boolean", "boolean"),
                                ("long", "long"),
                                ("double", "double"),
                                ("string", "string"),
                            )
                        ],
                    }
                ),
            ),
        )
    ]
)


def read(*rows: tuple[str | None, str | None]) -> list[dict[str, Any]]:
    schema = pa.schema([("properties", pa.string()), ("property_types", pa.string())])
    batch = pa.RecordBatch.from_pylist([{"properties": text, "property_types": types} for text, types in rows], schema)
    (shaped,) = Shaper(PROPERTIES).shape([batch])
    return [dict(row["properties"]) for row in shaped.to_pylist()]


def value(kind: str, **given: object) -> dict[str, object]:
    return {"type": kind, "boolean": None, "long": None, "double": None, "string": None, **given}


PLAIN = ('{"a": 1, "b": 5000000000, "c": 1.0, "d": true, "e": "x"}', None)
PLAIN_VALUES = {
    "a": value("int", long=1),
    "b": value("long", long=5_000_000_000),
    "c": value("double", double=1.0),
    "d": value("boolean", boolean=True),
    "e": value("string", string="x"),
}


@pytest.mark.parametrize(
    ("other", "read_as"),
    [
        ((None, None), {}),
        (('{"n": 1}', '{"n": "byte"}'), {"n": value("byte", long=1)}),
        (('{"n": ["NaN"]}', '{"n": "float", "z": "null"}'), {"n": value("float", double=None), "z": value("null")}),
        (('{"n": "\ufffe0"}', None), {"n": value("string", string="\0")}),
        (('{"n": "["}', None), {"n": value("string", string="[")}),
    ],
)
def test_properties_are_the_same_with_whatever_else_they_are_read(
    other: tuple[str | None, str | None], read_as: dict[str, Any]
) -> None:
    first, second = read(PLAIN, other)
    assert first == PLAIN_VALUES
    for found in second.values():
        if found["double"] is not None and found["double"] != found["double"]:
            found["double"] = None  # NaN
    assert second == read_as


def test_bodies_are_parsed_though_some_are_no_objects() -> None:
    schema = StructType([StructField("body", StructType([StructField("n", IntegerType())]))])
    bodies = ['{"n": 1}', "no", None, '{"n": "x"}', '{"m": 2}', "{} {}", "", '{"n":\n3}']
    batch = pa.RecordBatch.from_pylist([{"body": body} for body in bodies], pa.schema([("body", pa.string())]))
    (shaped,) = Shaper(schema).shape([batch])
    found = [row["body"] for row in shaped.to_pylist()]
    assert found == [{"n": 1}, None, None, None, {"n": None}, None, None, {"n": 3}]


def test_what_is_read_can_be_staged() -> None:
    schema = pa.schema([("properties", pa.map_(pa.string(), PROPERTY))])
    (properties,) = read(PLAIN)
    batch = pa.RecordBatch.from_pylist([{"properties": list(properties.items())}], schema)
    (row,) = Staging(1, "queue://orders").stage(batch).to_pylist()
    assert (row["properties"], row["property_types"]) == PLAIN

"""The options of a table in Spark's catalog, which Spark itself tells the data source only when it makes the table.

The comment of the table's first column keeps them: of a table Spark knows the schema, and gives it to each read and
write. There is no password in them, as in no option.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructType

from jmsql.spark.options.options import Use, applies

__all__ = ["options_of_new_table", "options_of_table", "table_comment"]

_MARK = "A table of jmsql with the options "
_OPTION = "option."


def options_of_new_table(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of CREATE TABLE, by their names in lower case; None if no table is made.

    Args:
        properties: What Spark gives: with a table, each option besides with a prefix, and properties of Spark's own.
    """
    names = {name.lower(): value for name, value in properties.items()}
    if "provider" not in names:
        return None
    return {name.removeprefix(_OPTION): value for name, value in names.items() if name.startswith(_OPTION)}


def table_comment(options: Mapping[str, str]) -> str:
    """Return the comment, in DDL, of the first column of a table that has these options."""
    text = _MARK + json.dumps(options, sort_keys=True)
    return "COMMENT '" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def options_of_table(schema: StructType, use: Use) -> dict[str, str]:
    """Return the options that a table has, if the schema is that of one, and that mean something for what is done.

    Args:
        schema: What is read or written.
        use: What is done.
    """
    comment = str(schema.fields[0].metadata.get("comment", "")) if schema.fields else ""
    if not comment.startswith(_MARK):
        return {}
    options: dict[str, str] = json.loads(comment.removeprefix(_MARK))
    if use is Use.BATCH_READ and options.get("history", "").lower() == "true":
        use = Use.HISTORY_READ
    return {name: value for name, value in options.items() if applies(name, use)}

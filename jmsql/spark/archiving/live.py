"""What waits in queues and subscriptions now, as it is, without consuming it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg

from jmsql.client._sync.administration.administration import Administration
from jmsql.spark.archiving.manifest import Manifest
from jmsql.spark.archiving.parquet_files import waiting_schema
from jmsql.spark.archiving.settings import ArchiveSettings
from jmsql.spark.archiving.target import Target
from jmsql.spark.archiving.unloading import Unloading
from jmsql.spark.columns.arrow import Shaper
from jmsql.spark.columns.expressions import rare_columns_of_messages
from jmsql.spark.connection import inlined
from jmsql.spark.options.options import Options
from jmsql.spark.reading.browse import WHOLE_QUEUE, find_queue, read_queue, source_of
from jmsql.store.runners._sync.runner import PsycopgRunner
from jmsql.store.statement import SqlFile, Statement, fill, rows
from jmsql.values.destinations import Queue, Topic
from jmsql.values.postgresql_text import optional_to_postgresql

__all__ = ["LIVE", "count_live", "write_live"]

LIVE = "_live"
"""The directory of what waits, within the target. Spark does not look into it when it reads the target."""

_DOING = "archiving what waits"
_sql = SqlFile("archive", "jmsql.spark")


def _sources(administration: Administration, settings: ArchiveSettings) -> list[tuple[Options, int]]:
    """Return the options that tell each queue and subscription where something waits, and how much about."""
    wanted = settings.uris
    found = [
        (settings.source(Queue(each.queue)), each.ready + each.waiting + each.delayed)
        for each in administration.queues()
        if wanted is None or Queue(each.queue).uri in wanted
    ]
    for each in administration.subscriptions():
        if each.subscription is not None and (wanted is None or Topic(each.topic).uri in wanted):
            source = settings.source(Topic(each.topic), subscription=each.subscription, client_id=each.client_id)
            found.append((source, each.ready + each.waiting))
    return [(options, count) for options, count in found if count]


def count_live(administration: Administration, settings: ArchiveSettings) -> int:
    """Return how many messages wait."""
    return sum(count for _, count in _sources(administration, settings))


def write_live(
    administration: Administration,
    settings: ArchiveSettings,
    target: Target,
    manifest: Manifest,
    unloading: Unloading,
) -> int:
    """Write what waits to a directory of its own, in the place of what an earlier run has written there.

    Returns:
        How many messages they are.
    """
    schema = waiting_schema(settings.properties)
    with settings.database.connect(_DOING) as connection:
        statements = [
            _statement(connection, options, Shaper(schema).columns) for options, _ in _sources(administration, settings)
        ]
    files = unloading.run(statements, schema)
    placed = [replace(file, directory=f"{LIVE}/{file.directory}") for file in files]
    manifest.commit(placed, [name for name, _ in target.files(LIVE)])
    return sum(file.messages for file in files)


def _statement(connection: psycopg.Connection[Any], options: Options, columns: Sequence[str]) -> str:
    runner = PsycopgRunner(connection, options.schema)
    queue_id = find_queue(runner, options)
    rare = runner.run(rare_columns_of_messages)
    subscription = {
        "subscription": optional_to_postgresql(options.subscription),
        "client_id": optional_to_postgresql(options.client_id),
    }
    read = read_queue([name for name in columns if not name.startswith("subscription")], None, (), rare)
    waiting = Statement("waiting", fill(_sql["waiting"], read=read.text), _DOING, rows)
    parameters = {"queue_id": queue_id, "destination": source_of(options).uri, **WHOLE_QUEUE, **subscription}
    return inlined(connection, options.schema, waiting.bind(parameters))

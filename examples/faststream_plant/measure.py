"""Sends readings, and makes the table for them: ``python -m examples.faststream_plant.measure 250``."""

import asyncio
import os
import sys

import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from examples.faststream_plant.plant import READINGS, Reading, store


async def main(count: int) -> None:
    """Send so many readings, of which every hundredth is too hot."""
    engine = create_async_engine(sqlalchemy.make_url(os.environ["JMSQL_URL"]).set(drivername="postgresql+psycopg"))
    async with engine.begin() as database:
        await database.run_sync(READINGS.metadata.create_all)
        await store.send_many(
            database,
            [Reading(sensor=f"s{number}", celsius=20 if number % 100 else 90) for number in range(count)],
        )
    await engine.dispose()


asyncio.run(main(int(sys.argv[1])))

"""The test of the plant, in a transaction that is rolled back."""

import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from examples.faststream_plant.plant import READINGS, Reading, app, store
from jmsql.testing import sent


async def test_readings_are_stored_and_hot_ones_ring(jmsql_url: str) -> None:
    engine = create_async_engine(sqlalchemy.make_url(jmsql_url).set(drivername="postgresql+psycopg"))
    async with engine.connect() as database:
        await database.run_sync(READINGS.metadata.create_all)
        await store.send_many(database, [Reading(sensor="a", celsius=20), Reading(sensor="b", celsius=90)])
        await app.drain(transaction=database)
        assert len((await database.execute(READINGS.select())).all()) == 2
        (call,) = await sent(database, "plant.calls")
        assert call.get_body(str) == "b is too hot"
        await database.rollback()
    await engine.dispose()

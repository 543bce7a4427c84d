"""Readings of a plant's sensors, which are stored in batches; those that are too hot ring."""

import sqlalchemy
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection

from jmsql.worker import Application, Router

READINGS = sqlalchemy.Table(
    "reading",
    sqlalchemy.MetaData(),
    sqlalchemy.Column("sensor", sqlalchemy.Text),
    sqlalchemy.Column("celsius", sqlalchemy.Double),
)


class Reading(BaseModel):
    """A reading of a sensor."""

    sensor: str
    celsius: float


class Alarm(BaseModel):
    """A sensor that is too hot."""

    sensor: str


router = Router()


@router.listener("alarms", reply_to="plant.calls")
async def ring(alarm: Alarm) -> str:
    """Call an engineer."""
    return f"{alarm.sensor} is too hot"


@router.listener("readings", chunk=100, chunk_wait=0.2)
async def store(readings: list[Reading], database: AsyncConnection) -> None:
    """Store readings, and ring for those that are too hot."""
    await database.execute(READINGS.insert(), [each.model_dump() for each in readings])
    await ring.send_many(database, [Alarm(sensor=each.sensor) for each in readings if each.celsius > 80])


app = Application()
app.include(router, prefix="plant.")

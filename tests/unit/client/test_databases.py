"""The databases that an administration takes, and the objects that it refuses when it is made."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy

import jmsql
import jmsql.asyncio
from jmsql import admin
from jmsql.asyncio import admin as asyncio_admin

URL = "postgresql://shop@db/shop"


@pytest.mark.parametrize(
    ("administration", "factory"),
    [
        (admin.Administration, jmsql.asyncio.ConnectionFactory),
        (asyncio_admin.Administration, jmsql.ConnectionFactory),
    ],
)
def test_an_object_that_is_no_database_is_refused_at_once(administration: Any, factory: Any) -> None:
    for given in (5, object(), sqlalchemy.MetaData(), factory(URL)):  # the factory is of the other module
        with pytest.raises(TypeError, match="Expected the database as a URL, a connection factory or a SQLAlchemy"):
            administration(given)
    administration(sqlalchemy.create_engine("postgresql+psycopg://shop@db/shop"))

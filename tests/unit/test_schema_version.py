from __future__ import annotations

from alembic.config import Config
from alembic.script import ScriptDirectory

from jmsql.store import migration


def test_newest_version_is_that_of_the_last_migration() -> None:
    """It is read from the files' names, since clients need it and Alembic is slow to import."""
    config = Config()
    config.set_main_option("script_location", str(migration._migrations_directory()))
    assert ScriptDirectory.from_config(config).get_current_head() == migration.newest_version()

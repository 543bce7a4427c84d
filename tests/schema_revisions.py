"""A revision that a later release could have, with which tests upgrade the schema."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from alembic.config import Config
from sqlalchemy import Connection

from jmsql.store.schema import migration, version
from jmsql.store.schema.version import migrations_directory, newest_version

NEXT = f"{int(newest_version()) + 1:04}"
"""The version of the next release."""

_REVISION = f"""
from pathlib import Path

from jmsql.store.schema.migration import apply_revision, refuse_downgrade

revision, down_revision, branch_labels, depends_on = "{NEXT}", "{newest_version()}", None, None


def upgrade():
    apply_revision(revision, [Path(__file__).parent.parent / "{NEXT}" / "later.sql"])


def downgrade():
    refuse_downgrade()
"""
# No statement of this release names these objects.
_SQL = """
create function jmsql_internal.later() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    return null;
end
$$;

create or replace function jmsql_internal.has_access_to_all(wanted text, role name) returns boolean
    language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (
        select from jmsql_internal.permission p
        where p.queue_id is null and pg_has_role(role, p.grantee, 'usage')
          and (p.action in (wanted, 'administer') or (p.action = 'receive' and wanted = 'browse')));
end
$$;

create table jmsql_internal.note (queue_id integer primary key, text text);
alter table jmsql_internal.{table} add column later integer, add column latest integer default 3;
create trigger later after insert on jmsql_internal.{table} for each row execute function jmsql_internal.later();

select jmsql_internal.renew_privileges();
"""


def alembic_configuration(connection: Connection, schema: str) -> Config:
    """Return the configuration with which Alembic brings a schema to a revision."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    config.set_main_option("jmsql_schema", schema)
    config.attributes["connection"] = connection
    return config


def become_next_release(directory: Path, monkeypatch: pytest.MonkeyPatch, table: str = "message") -> None:
    """Have this process work as the next release, which has one revision more.

    Args:
        directory: Gets a copy of the migrations.
        monkeypatch: Has this process use them.
        table: The table that the revision changes.
    """
    migrations = directory / "migrations"
    shutil.copytree(str(migrations_directory()), migrations)
    (migrations / "versions" / f"{NEXT}_later.py").write_text(_REVISION)
    (migrations / NEXT).mkdir()
    (migrations / NEXT / "later.sql").write_text(_SQL.format(table=table))
    monkeypatch.setattr(migration, "migrations_directory", lambda: migrations)
    for module in (migration, version):
        monkeypatch.setattr(module, "newest_version", lambda: NEXT)

"""What stands ready of a role's permissions is what they are, however they change."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

_LISTED = "select grantee, action, unnest(queue_ids) from jmsql_internal.access_list order by 1, 2, 3"
_PERMITTED = """
    select grantee, action, queue_id from jmsql_internal.permission where queue_id is not null
    union
    select grantee, 'browse', queue_id from jmsql_internal.permission where queue_id is not null and action = 'receive'
    order by 1, 2, 3"""


def _accessible(database: psycopg.Connection[Any], wanted: str, role: str) -> set[str]:
    rows = database.execute(
        "select q.name from jmsql_internal.queue q "
        "where q.queue_id = any(jmsql_internal.accessible_queues(%s, %s)) and q.name is not null",
        [wanted, role],
    )
    return {name for (name,) in rows}


def test_it_follows_each_permission(owner: psycopg.Connection[Any], roles: dict[str, str]) -> None:
    member, group = roles["stranger"], roles["receiver"]
    for queue in ("first", "second", "third"):
        owner.execute("select jmsql.create_queue(%s)", [queue])
    owner.execute("select jmsql.grant_access('first', %s, 'send', 'receive')", [member])
    owner.execute("select jmsql.grant_access('second', %s, 'receive', 'browse')", [member])
    owner.execute("select jmsql.grant_access('third', %s, 'receive')", [member])
    assert _accessible(owner, "send", member) == {"first"}
    assert _accessible(owner, "receive", member) == {"first", "second", "third"}
    owner.execute("select jmsql.revoke_access('second', %s, 'receive')", [member])
    owner.execute("select jmsql.delete_destination('queue://third', true)")
    assert _accessible(owner, "receive", member) == {"first"}
    assert _accessible(owner, "browse", member) == {"first", "second"}
    owner.execute("update jmsql_internal.permission set action = 'browse' where action = 'send'")
    assert _accessible(owner, "send", member) == set()
    owner.execute(sql.SQL("grant {} to {}").format(sql.Identifier(group), sql.Identifier(member)))
    assert _accessible(owner, "receive", member) == {"first", "orders"}
    owner.execute(sql.SQL("revoke {} from {}").format(sql.Identifier(group), sql.Identifier(member)))
    assert _accessible(owner, "receive", member) == {"first"}
    assert owner.execute(_LISTED).fetchall() == owner.execute(_PERMITTED).fetchall()


def test_permissions_that_change_at_once_are_all_in_it(
    owner: psycopg.Connection[Any], roles: dict[str, str], jmsql_clean_url: str
) -> None:
    """A queue goes, and its permissions with it, while another transaction that has not ended has given one."""
    role = roles["stranger"]
    for queue in ("one", "other"):
        owner.execute("select jmsql.create_queue(%s)", [queue])
    owner.execute("select jmsql.grant_access('one', %s, 'send')", [role])
    with psycopg.connect(jmsql_clean_url) as granting:
        granting.execute("select jmsql.grant_access('other', %s, 'send')", [role])
        owner.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            owner.execute("delete from jmsql_internal.queue where name = 'one'")
    owner.execute("reset lock_timeout")
    owner.execute("delete from jmsql_internal.queue where name = 'one'")
    assert _accessible(owner, "send", role) == {"other"}
    assert owner.execute(_LISTED).fetchall() == owner.execute(_PERMITTED).fetchall()

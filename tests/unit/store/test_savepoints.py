"""What the text of a statement tells about savepoints."""

from __future__ import annotations

import pytest

from jmsql.store.wire.application_sql import SavepointCommand, SavepointStep, read_savepoint_step

SET, RELEASE, ROLLBACK = SavepointCommand.SET, SavepointCommand.RELEASE, SavepointCommand.ROLLBACK


@pytest.mark.parametrize(
    ("statement", "command", "name"),
    [
        ("savepoint a", SET, "a"),
        ('SAVEPOINT "An ""order"" "', SET, 'An "order" '),
        ("\n savepoint A1$ ;\n", SET, "a1$"),
        ("release a", RELEASE, "a"),
        ("RELEASE SAVEPOINT sa_savepoint_1", RELEASE, "sa_savepoint_1"),
        ("rollback to a", ROLLBACK, "a"),
        ("Rollback Work To Savepoint a;", ROLLBACK, "a"),
        ("rollback transaction to a", ROLLBACK, "a"),
        ("/* why */ rollback to -- not all\n savepoint a /* route='/orders' */", ROLLBACK, "a"),
        ("rollback to a -- the end", ROLLBACK, "a"),
    ],
)
def test_steps_are_told_by_their_text(statement: str, command: SavepointCommand, name: str) -> None:
    assert read_savepoint_step(statement) == SavepointStep(command, name)


@pytest.mark.parametrize(
    "statement", ["select 1; rollback to a", "rollback", "select 'rollback to a'", "rollback to a b"]
)
def test_what_may_roll_back_is_not_overlooked(statement: str) -> None:
    assert read_savepoint_step(statement) == SavepointStep(ROLLBACK, None)


@pytest.mark.parametrize("statement", ["select 1", "", "insert into savepoint values ('release')", "selectrollbacks"])
def test_other_statements_are_no_steps(statement: str) -> None:
    assert read_savepoint_step(statement) is None

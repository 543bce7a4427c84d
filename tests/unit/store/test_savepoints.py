"""What the text of a statement tells about savepoints, and the end of the transaction."""

from __future__ import annotations

import pytest

from jmsql.store.wire.application_sql import SavepointCommand, SavepointStep, effects_of

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
    assert effects_of(statement).savepoint == SavepointStep(command, name)


@pytest.mark.parametrize(
    "statement", ["select 1; rollback to a", "rollback", "select 'rollback to a'", "rollback to a b"]
)
def test_a_statement_that_may_roll_back_is_recognised(statement: str) -> None:
    assert effects_of(statement).savepoint == SavepointStep(ROLLBACK, None)


@pytest.mark.parametrize("statement", ["select 1", "", "insert into savepoint values ('release')", "selectrollbacks"])
def test_other_statements_are_no_steps(statement: str) -> None:
    assert effects_of(statement).savepoint is None


@pytest.mark.parametrize(
    "statement",
    [
        "commit",
        " COMMIT;",
        "end",
        "Abort work",
        "rollback",
        "rollback and chain",
        "/* why */ -- not\n rollback transaction",
        "prepare transaction 'x'",
        "/* /* */ ' */ rollback and chain",
        "commit; select 1",
        "insert into a values (1); rollback and chain",
        ";rollback; begin",
        "select ';'; abort; begin",
        "select 1; -- not that\n /* why */ end; begin",
        "do $x$ begin null; end $x$; commit and chain",
        "select date'2026-01-01'; end",
    ],
)
def test_the_end_of_a_transaction_is_known_by_the_first_word_of_a_command(statement: str) -> None:
    assert effects_of(statement).ends_transaction


@pytest.mark.parametrize(
    "statement",
    [
        "rollback to a",
        "/* a /* b */ commit */ select 1",
        "/* why */ rollback /* part */ work to savepoint a",
        "prepare a as select 1",
        "select 'commit'",
        "/* route */ select case when a then 1 /* why */ end from b",
        "endless",
        "do $$ begin null; end $$",
        "create function a() returns void language plpgsql as $body$ begin perform 1; end $body$",
        "create function a() returns integer begin atomic select 1; end",
        "insert into a values ('; rollback', E'\\'; commit', \"; end\")",
        "select 1; -- ; commit\n",
        "select 1 /* ; commit */",
        "select 1; rollback to savepoint a",
        "",
    ],
)
def test_other_statements_are_no_end_of_the_transaction(statement: str) -> None:
    assert not effects_of(statement).ends_transaction

from __future__ import annotations

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from jmsql import JMSException
from jmsql.store.schema import version as schema_version


def test_newest_version_is_that_of_the_last_migration() -> None:
    """It is read from the files' names, since clients need it and Alembic is slow to import."""
    config = Config()
    config.set_main_option("script_location", str(schema_version.migrations_directory()))
    assert ScriptDirectory.from_config(config).get_current_head() == schema_version.newest_version()


@pytest.mark.parametrize("found", ["0009", "0010", "0011"])
def test_release_works_with_the_version_before_and_the_one_after(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(schema_version, "newest_version", lambda: "0010")
    schema_version.check_version(found, "jmsql")


@pytest.mark.parametrize(
    ("newest", "found", "advice"),
    [
        ("0010", "0008", "run `jmsql migrate`"),
        ("0010", "0012", "upgrade jmsql"),
        ("9999", "10001", "upgrade jmsql"),
        ("0001", "0000", "run `jmsql migrate`"),
    ],
)
def test_release_refuses_all_other_versions(
    monkeypatch: pytest.MonkeyPatch, newest: str, found: str, advice: str
) -> None:
    monkeypatch.setattr(schema_version, "newest_version", lambda: newest)
    with pytest.raises(JMSException, match=f"version {found}, .* version {newest}: .*{advice}"):
        schema_version.check_version(found, "jmsql")


@pytest.mark.parametrize(
    ("command", "completed"),
    [
        ("jmsql resume orders", "jmsql resume orders --schema shop"),
        ("jmsql resume 'a`b'", "jmsql resume 'a`b' --schema shop"),
        ("jmsql resume 'it'\"'\"'s `a`'", "jmsql resume 'it'\"'\"'s `a`' --schema shop"),
        ("jmsql migrate --schema shop", "jmsql migrate --schema shop"),
        ("select * from jmsql.messages", "select * from jmsql.messages"),
    ],
)
def test_commands_in_advice_end_with_the_schema(command: str, completed: str) -> None:
    advice = "It isn't so. `{0}` ends that; see `{0}`.".format
    assert schema_version.with_place(advice(command), "shop") == advice(completed)

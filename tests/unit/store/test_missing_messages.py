"""What a commit says that finds messages missing, in whatever language the server speaks."""

from __future__ import annotations

import pytest

from jmsql import TransactionRolledBackException
from jmsql.store.receiving.acknowledge import missing_messages


@pytest.mark.parametrize(
    "text",
    [
        'invalid input syntax for type integer: "2 of 3 messages were taken away"',
        "ungültige Eingabesyntax für Typ integer: »2 of 3 messages were taken away«",
        "syntaxe en entrée invalide pour le type integer : « 2 of 3 messages were taken away »",
    ],
)
def test_missing_messages_are_told_whatever_quotes_the_server_uses(text: str) -> None:
    found = missing_messages(TransactionRolledBackException(f"committing: PostgreSQL refused the statement ({text})."))
    assert str(found).startswith("2 of 3 messages were taken away from the transaction")


def test_other_errors_of_a_commit_are_not_taken_for_it() -> None:
    assert missing_messages(TransactionRolledBackException("committing: could not serialize access")) is None

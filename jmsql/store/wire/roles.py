"""The role as which a transaction's statements run: the connection's, or another one that the application sets."""

from __future__ import annotations

from typing import NamedTuple

from jmsql.store.statement import Query, Statement, nothing, record


class Role(NamedTuple):
    """The user and the role of an open transaction, as its settings name them."""

    user: str
    role: str

    def set(self) -> Query[None]:
        """Return the statement that sets them until the transaction ends."""
        return _set.bind(self._asdict())


_set = Statement(
    "set_role",
    "select set_config('session_authorization'::text, %(user)s::text, true), "
    "set_config('role'::text, %(role)s::text, true)",
    "setting the application's role",
    nothing,
)

read_role = Statement(
    "read_role",
    "select current_setting('session_authorization'::text), current_setting('role'::text)",
    "reading the role",
    record(Role._make),
).bind()

# Not RESET, which would also end settings that the application has made for the session.
drop_role = [
    Statement("drop_user", "set local session_authorization to default", "returning to the user", nothing).bind(),
    Statement("drop_role", "set local role to default", "returning to the role", nothing).bind(),
]
"""The statements after which the others of the transaction run as the role that has connected."""

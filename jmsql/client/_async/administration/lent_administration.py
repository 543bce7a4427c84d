"""Administration on a connection of another owner."""

from __future__ import annotations

from jmsql.client._async.administration.administration import Administration
from jmsql.store.saying import Saying
from jmsql.store.wire._async.runner import PsycopgRunner


class LentAdministration(Administration):
    """Inspects and changes destinations on a connection that is lent for it, and stays open when this is closed."""

    def __init__(self, runner: PsycopgRunner, said: Saying = Saying()) -> None:  # noqa: B008 - immutable
        super().__init__(schema=runner.schema)
        self._saying = said
        self._where = "on a connection that is lent"
        self._runner = runner

    async def _open_runner(self) -> PsycopgRunner:
        return self._runner

    async def close(self) -> None:
        """Do nothing: the owner of the connection closes it."""

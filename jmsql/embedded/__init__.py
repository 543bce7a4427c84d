"""A PostgreSQL server of one's own, for laptops, tests and demonstrations (the extra ``embedded``).

It starts in about a second, also as root; listens on a Unix domain socket only; keeps its data where the platform
keeps data; is shared by all processes of the user and stops with the last of them. For Linux and macOS.
"""

from __future__ import annotations

from jmsql.embedded.server import EmbeddedServer, start_server

__all__ = ["EmbeddedServer", "start_server"]

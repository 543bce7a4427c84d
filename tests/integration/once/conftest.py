"""What the tests of sends under conditions start from."""

from __future__ import annotations

from tests.integration.access.conftest import roles, url_of

__all__ = ["roles", "url_of"]

"""The console for the staff of a Django project."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections
from django.http import HttpRequest

from jmsql.console import Level, Visitor
from jmsql.public_names import set_module

if TYPE_CHECKING:
    from starlette.requests import Request


@set_module("jmsql.django")
async def staff(request: Request) -> Visitor | None:
    """Admit the staff of a Django project to the console: ``Console(app.factory, access=staff)``.

    A user with `is_staff` and the permission `jmsql.view_message` may look, and with `jmsql.operate_console` use the
    actions as well. Sessions are the project's.

    Args:
        request: The request, with the cookie of Django's session.

    Returns:
        The visitor, with the user's name; None: the user has not signed in, or may not look.
    """
    key = request.cookies.get(settings.SESSION_COOKIE_NAME)
    return await sync_to_async(_visitor)(key) if key else None


def _visitor(key: str) -> Visitor | None:
    close_old_connections()
    try:
        request: Any = HttpRequest()
        session = import_module(settings.SESSION_ENGINE).SessionStore(key)
        # After a change of SECRET_KEY, Django gives the session another key, or ends it. Its own next page does so, and
        # tells the browser of the key: from here, the user would be signed out.
        session.cycle_key = session.flush = lambda: None
        request.session = session
        user: Any = get_user(request)  # which checks that the password is still the one of the session
        if not (user.is_active and user.is_staff):
            return None
        if user.has_perm("jmsql.operate_console"):
            return Visitor(user.get_username(), Level.OPERATE)
        return Visitor(user.get_username(), Level.LOOK) if user.has_perm("jmsql.view_message") else None
    finally:
        close_old_connections()

"""The console beside Django, as the page mounts it: for the staff alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

import jmsql
from tests.console.http import Browsing
from tests.console.serving import Served, served
from tests.documentation import blocks


@pytest.fixture(params=["", "/behind"], ids=["", "behind a proxy"])
def site(request: pytest.FixtureRequest, environment: dict[str, str], project: None) -> Iterator[Served]:
    """The project with the page's `asgi.py`."""
    [block] = [each for each in blocks("docs/django.md", "python") if each.title == "shop/asgi.py"]
    names: dict[str, Any] = {}
    exec(block.text, names)
    application = names["application"]

    async def behind_a_proxy(scope: Any, receive: Any, send: Any) -> None:
        # uvicorn puts the `--root-path` before the path that the proxy has left.
        await application(scope | {"root_path": request.param}, receive, send)

    with served(behind_a_proxy, f"{request.param}/jms") as where:
        yield where
    for route in names["application"].routes:
        if route.path == "/jms":
            route.app.close()


def visitor(site: Served, *permissions: str, **user: Any) -> Browsing:
    """A browser with the session of a new user."""
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    User.objects.all().delete()
    made = User.objects.create_user("clerk", **user)
    made.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(made)
    browsing = Browsing(site)
    browsing.cookies["sessionid"] = client.cookies["sessionid"].value
    return browsing


def test_strangers_and_users_outside_the_staff_are_refused(site: Served) -> None:
    from django.contrib.auth.models import User

    stranger = Browsing(site)
    assert stranger.get("/").status == 403
    stranger.cookies["sessionid"] = "invented"
    assert stranger.get("/").status == 403
    assert visitor(site, "view_message", "operate_console").get("/").status == 403
    assert visitor(site, is_staff=True).get("/").status == 403
    assert visitor(site, "view_message", is_staff=True, is_active=False).get("/").status == 403
    clerk = visitor(site, "view_message", is_staff=True)
    assert clerk.get("/").status == 200
    user = User.objects.get()
    user.set_password("another")
    user.save()
    assert clerk.get("/").status == 403, "the session ends with the password"
    connections.close_all()


def test_a_new_secret_key_signs_nobody_out(site: Served) -> None:
    from django.conf import settings
    from django.contrib.sessions.models import Session
    from django.test import override_settings

    clerk = visitor(site, "view_message", is_staff=True)
    sessions = set(Session.objects.values_list("session_key", flat=True))
    with override_settings(SECRET_KEY="another " * 8, SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        for _ in range(2):
            assert clerk.get("/").status == 200
    assert set(Session.objects.values_list("session_key", flat=True)) == sessions
    connections.close_all()


def test_staff_may_look_but_not_act_and_operators_need_the_key_of_a_form(
    site: Served, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        jmsql.send(context, "orders", "x")
    clerk = visitor(site, "view_message", is_staff=True)
    orders = clerk.find("orders")
    assert clerk.get(f"{orders}/purge").status == 403
    operator = visitor(site, "operate_console", is_staff=True)
    page = operator.get(orders)
    for address in re.findall(r"(?:href|src)=\"([^\"]*/static/[^\"]*)\"", page.text):
        assert address.startswith(f"{site.prefix}/static/")
        assert operator.request("GET", address).status == 200
    fields = operator.form(f"{orders}/purge")
    forged = [(name, "x" if "key" in name or "token" in name else value) for name, value in fields]
    assert forged != fields
    for attempt, headers in ((forged, {}), (fields, {"Origin": "http://elsewhere", "Sec-Fetch-Site": "cross-site"})):
        assert operator.post(f"{orders}/purge", attempt, headers).status == 403
    assert operator.act(f"{orders}/purge") == "1 message deleted."
    connections.close_all()


def test_django_answers_all_other_addresses(site: Served) -> None:
    prefix = site.prefix.removesuffix("/jms")
    found = Browsing(site).request("GET", f"{prefix}/admin/")
    assert found.status == 302
    assert found.location.startswith(f"{prefix}/admin/login/?next={prefix}/admin/")

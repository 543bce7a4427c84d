"""Protection from other pages and other people: headers, and checks of the host and of a form's origin."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import Request

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer", with which browsers do not say where a form comes from.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Robots-Tag": "noindex",
}

FORM_COOKIE = "jmsql-console-form"
FORM_FIELD = "form_key"
_KEY = re.compile(r"[0-9a-f]{32}")


def form_key(request: Request) -> tuple[str, bool]:
    """Return the key that the forms of a page have, and whether it is new, so that a cookie is to be set."""
    known = request.cookies.get(FORM_COOKIE, "")
    return (known, False) if _KEY.fullmatch(known) else (secrets.token_hex(16), True)


def is_known_host(request: Request, hosts: Collection[str] | None) -> bool:
    """Tell whether a request names a host under which the console is known; None: the application has seen to that."""
    if hosts is None:
        return True
    return _host_name(request.headers.get("host", "")) in hosts


def _host_name(host: str) -> str:
    name = host.lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0]


def forgery(request: Request, given_key: str) -> str | None:
    """Say why a form is refused, or return None if it is one of this console's own pages."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin") or request.headers.get("referer")
    if site not in {None, "same-origin"} or origin is None:
        return "The form was not sent by a page of this console."
    if _site(origin) != request.headers.get("host", "").lower():
        return "The form was sent by a page of another site."
    key = request.cookies.get(FORM_COOKIE, "")
    if not _KEY.fullmatch(key) or not hmac.compare_digest(key.encode(), given_key.encode()):
        return "The page is too old, or the browser keeps no cookies. Open the page again, and repeat it."
    return None


def _site(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # no address at all
        return None

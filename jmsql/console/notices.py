"""The outcomes of actions, on their way to the next page.

The browser carries them, in a cookie of their own each: another process of the application may answer for that page.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Mapping

from jmsql.console.views import Notice

PARAMETER = "notice"
"""The part of a page's address that names the notice."""
SECONDS = 60
"""For so long the browser keeps a notice whose page it does not open."""

_COOKIE = "jmsql-console-notice-"
_KEY = re.compile(r"[0-9a-f]{16}")
_LONGEST = 3800
"""Characters of a cookie's value. Browsers keep 4096 bytes of a cookie, its name included."""
_SHORTENED = 400
"""Characters that are left of a longer text. Each takes up to eight bytes in a cookie."""
_OWN_ADDRESS = re.compile(r"/(?![/\\])")


def new_key() -> str:
    """Return a notice's name, which cannot be guessed."""
    return secrets.token_hex(8)


def cookie_of(key: str) -> str:
    """Return the name of a notice's cookie."""
    return _COOKIE + key


def pack(notice: Notice) -> str:
    """Return a notice as the value of a cookie, shortened if it is too long for one."""
    packed = _packed(notice)
    if len(packed) > _LONGEST:
        packed = _packed(Notice(f"{notice.text[:_SHORTENED]}…", notice.is_problem))
    return packed


def _packed(notice: Notice) -> str:
    return base64.urlsafe_b64encode(json.dumps(notice, ensure_ascii=False).encode(errors="replace")).decode()


def unpack(cookies: Mapping[str, str], key: str) -> Notice | None:
    """Return a notice that a browser brings along; None: there is none, or the console has made none like it."""
    if not _KEY.fullmatch(key):
        return None
    try:
        parts = json.loads(base64.b64decode(cookies.get(cookie_of(key), ""), altchars=b"-_", validate=True))
    except ValueError:
        return None
    if not isinstance(parts, list) or [type(each) for each in parts] != [str, bool, str, str, str]:
        return None
    notice = Notice(*parts)
    return notice if not notice.address or _OWN_ADDRESS.match(notice.address) else None

"""Bare HTTP: what a program sends that is no browser, and what a browser would send."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from tests.console.serving import Served


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def location(self) -> str:
        return self.headers["Location"]

    @property
    def ids(self) -> dict[str, str]:
        """The paths that the links of destinations have, by their texts."""
        return {
            name: path
            for path, name in re.findall(r'href="([^"]*/(?:destinations|topics)/\d+)"[^>]*><bdi>([^<]*)<', self.text)
        }


@dataclass
class Browsing:
    """Someone who reads pages and sends their forms, and keeps cookies."""

    served: Served
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)

    def request(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str | None] | None = None
    ) -> Answer:
        """Send a request; a header of None is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.served.port, timeout=60)
        sent: dict[str, str | None] = {**self.headers}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent |= headers or {}
        try:
            connection.request(method, path, body, {name: value for name, value in sent.items() if value is not None})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        for cookie in response.headers.get_all("Set-Cookie", ()):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return Answer(response.status, response.headers, text)

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", self.served.prefix + path, headers=headers)

    def find(self, name: str) -> str:
        """Return the path of a destination, below the prefix."""
        answer = self.get(f"/search?{urlencode({'q': name})}")
        path = answer.location if answer.status == 303 else answer.ids[name]
        return path.removeprefix(self.served.prefix)

    def form(self, path: str) -> list[tuple[str, str]]:
        """Return the hidden fields of the form on a page."""
        answer = self.get(path)
        assert answer.status == 200, answer.text
        [text] = re.findall(r'<form class="confirm".*?</form>', answer.text, re.DOTALL)
        return [
            (name, _unescaped(value))
            for name, value in re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', text)
        ]

    def post(
        self, path: str, fields: Iterable[tuple[str, str]], headers: Mapping[str, str | None] | None = None
    ) -> Answer:
        sent = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": self.served.origin,
            "Sec-Fetch-Site": "same-origin",
        } | dict(headers or {})
        return self.request("POST", self.served.prefix + path, urlencode(list(fields)), sent)

    def act(self, path: str, query: str = "", **fields: str) -> str:
        """Confirm an action, and return what the page after it says of it."""
        answer = self.post(path, [*self.form(f"{path}?{query}" if query else path), *fields.items()])
        assert answer.status == 303, answer.text
        after = self.request("GET", answer.location)
        [said] = re.findall(r'<p class="notice[^>]*>(.*?)</p>', after.text, re.DOTALL)[:1]
        return _unescaped(said)


def message_paths(text: str) -> list[str]:
    """Return the paths of the messages that a page links."""
    return re.findall(r"<a href=\"([^\"]*/messages/[^\"]*)\"", text)


def _unescaped(text: str) -> str:
    for entity, character in (("&#34;", '"'), ("&#39;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(entity, character)
    return text

"""The console as an ASGI application: access to pages, and the headers of every answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection
from importlib.resources import files
from urllib.parse import parse_qsl, unquote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import escape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from jmsql import ConnectionFactory
from jmsql.console import notices, presentation, safety
from jmsql.console.access import Access, AccessGate, Gate, Level, TokenGate, Visitor
from jmsql.console.actions import ActionRecord, Actions
from jmsql.console.charts import seconds
from jmsql.console.database import Database
from jmsql.console.pages import Pages
from jmsql.console.poller import INTERVAL, PATIENCE, Poller
from jmsql.console.problems import explain
from jmsql.console.views import Form, Notice, Reply, View
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.public_names import set_module
from jmsql.store.schema.version import with_place

logger = contained_logger("jmsql.console")

_LONGEST_FORM = 1024 * 1024
_TITLES = {
    400: "That cannot be understood",
    401: "Who are you?",
    403: "Not allowed",
    404: "Not found",
    405: "Not this way",
    413: "Too large",
    429: "Too many attempts",
    500: "A defect",
}
_COMMAND = re.compile("<code>(jmsql [^<]*)</code>")
_UNKNOWN_HOST = "This console does not answer under that name of a host."
_STATIC = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "htmx-2.0.11.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@set_module("jmsql.console")
class Console:
    """Pages that show the messages and the problems of a store, with actions to solve them.

    An ASGI application, to be mounted in an application of FastAPI, Starlette or Litestar, or to be served by itself.

    Args:
        factory: Where the messages are: a connection factory, or a URL. One role of PostgreSQL serves all visitors;
            its rights limit theirs.
        access: Decides for each request who may look and who may operate; see [`Access`][jmsql.console.Access].
        read_only: Whether no visitor may operate.
        hide_bodies: Whether bodies, properties, and errors with their tracebacks are never read.
        on_action: Called with an [`ActionRecord`][jmsql.console.ActionRecord] for each action, in the thread that has
            done it. The logger ``jmsql.console`` gets the same as JSON, at level INFO.
        allowed_hosts: The names of hosts, without ports, under which the console answers. None: any, for an application
            that checks them, or whose `access` goes by a cookie of that host.

    Raises:
        TypeError: There is no `access`: a console without it would be open to everybody.
    """

    def __init__(
        self,
        factory: ConnectionFactory | str,
        *,
        access: Access | Gate,
        read_only: bool = False,
        hide_bodies: bool = False,
        on_action: Callable[[ActionRecord], object] | None = None,
        allowed_hosts: Collection[str] | None = None,
    ) -> None:
        if not callable(access) and not isinstance(access, Gate):
            raise TypeError(
                "A console needs `access`, a function that says for each request who may look and who may operate: "
                "without it, it would be open to everybody."
            )
        self._gate = access if isinstance(access, Gate) else AccessGate(access)
        self._read_only = read_only
        self._hosts = None if allowed_hosts is None else frozenset(host.lower() for host in allowed_hosts)
        self._database = Database(
            ConnectionFactory(factory) if isinstance(factory, str) else factory, patience=PATIENCE
        )
        self._poller = Poller(self._database, hidden=hide_bodies, interval=INTERVAL, patience=PATIENCE)
        actions = Actions(self._database, hidden=hide_bodies, on_action=on_action)
        self._pages = Pages(self._database, self._poller, actions, hidden=hide_bodies)
        self._templates = _templates(self._database.factory.schema)
        self._versions = {name: _version(name) for name in _STATIC}
        self._starlette = Starlette(
            routes=[
                Route("/static/{name}", self._static, methods=["GET"]),
                *(
                    Route(path, self._endpoint(page, level, posts=posts), methods=["POST"] if posts else ["GET"])
                    for path, page, level, posts in self._pages.routes()
                ),
            ],
            exception_handlers={HTTPException: self._http_error, Exception: self._failure},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError("The console speaks HTTP alone.")
        await self._starlette(_located(scope), receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await run_in_threadpool(self.close)
                await send({"type": "lifespan.shutdown.complete"})
                return

    def close(self) -> None:
        """End the looks and the connections. A mounted console ends them by itself, seconds after the last page."""
        self._poller.close()
        self._database.close()

    # Requests

    async def _visitor(self, request: Request) -> Visitor | Response:
        """Return the visitor, or the answer to one who is not let in."""
        if not safety.is_known_host(request, self._hosts):
            return self._problem(request, None, 400, _UNKNOWN_HOST)
        visitor = await self._gate.visitor(request)
        if visitor is None:
            refusal = self._gate.refusal(request)
            return self._problem(request, None, refusal.status, refusal.advice, refusal.headers)
        return visitor

    def _endpoint(
        self, page: Callable[[View], Reply], level: Level, *, posts: bool
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            visitor = await self._visitor(request)
            if isinstance(visitor, Response):
                return visitor
            cookies = self._gate.admission(request)
            if cookies:
                return self._admitted(request, cookies)
            if self._read_only:
                visitor = visitor._replace(level=Level.LOOK)
            form = await _form(request) if posts else None
            if form is not None:
                reason = safety.forgery(request, form.get(safety.FORM_FIELD))
                if reason is not None:
                    return self._problem(request, visitor, 403, reason)
            if visitor.level < level:
                return self._problem(request, visitor, 403, "You may look here, and not change anything.")
            return await run_in_threadpool(self._answer, page, request, visitor, form)

        return answer

    def _answer(self, page: Callable[[View], Reply], request: Request, visitor: Visitor, form: Form | None) -> Response:
        view = View(request, visitor, form)
        try:
            reply = page(view)
        except JMSException as error:
            problem = explain(self._database, error, is_form=form is not None)
            if problem.status >= 500:
                logger.info("A page of the console cannot be shown: %s", error)
            return self._problem(request, visitor, problem.status, problem.text, title=problem.title)
        if reply.redirect is not None:
            return self._redirected(request, view.base + reply.redirect, reply.notice)
        key, is_new = safety.form_key(request)
        template = reply.template
        values = self._common(request, visitor) | reply.values | {"form_key": key}
        # The overview shows what is known while the database does not answer, and its advice tells of the rights.
        if not reply.is_fragment and template != "overview.html":
            values["restricted"] = self._restricted_role()
        if reply.is_fragment:
            content = self._templates.get_template(f"live/{template}").render(values).encode()
            tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            headers = {"ETag": tag}
            if request.headers.get("if-none-match") == tag:
                return self._finished(request, Response(status_code=304, headers=headers))
            return self._finished(request, HTMLResponse(content, headers=headers))
        notice_key = view.query.get(notices.PARAMETER)
        values["notice"] = notice = notices.unpack(request.cookies, notice_key)
        response = HTMLResponse(self._templates.get_template(template).render(values), status_code=reply.status)
        if notice is not None:  # it is shown once
            self._set_cookie(request, response, notices.cookie_of(notice_key), "", same_site="strict", seconds=0)
        if is_new:
            self._set_cookie(request, response, safety.FORM_COOKIE, key, same_site="strict")
        for name, value in self._gate.reminder(request).items():
            self._set_cookie(request, response, name, value, same_site="strict")
        return self._finished(request, response)

    def _redirected(self, request: Request, address: str, notice: Notice | None) -> Response:
        """Lead to another page, with what it is to show first."""
        if notice is None:
            return self._finished(request, RedirectResponse(address, status_code=303))
        key = notices.new_key()
        address = f"{address}{'&' if '?' in address else '?'}{notices.PARAMETER}={key}"
        response = RedirectResponse(address, status_code=303)
        name, value = notices.cookie_of(key), notices.pack(notice)
        self._set_cookie(request, response, name, value, same_site="strict", seconds=notices.SECONDS)
        return self._finished(request, response)

    def _restricted_role(self) -> str | None:
        """Return the console's role if it does not see all messages. None: it does, or the database does not answer."""
        try:
            rights = self._pages.rights()
        except JMSException:
            return None
        return None if rights.browses else rights.role

    def _common(self, request: Request, visitor: Visitor | None) -> dict[str, object]:
        return {
            "base": request.scope["jmsql.base"],
            "visitor": visitor,
            "operates": visitor is not None and visitor.level >= Level.OPERATE,
            "hidden": self._pages.hidden,
            "versions": self._versions,
            "now": self._database.now(),
            "path": request.scope["path"].removeprefix(request.scope["jmsql.base"]),
        }

    def _admitted(self, request: Request, cookies: dict[str, str]) -> Response:
        query = [(name, value) for name, value in request.query_params.multi_items() if name != TokenGate.PARAMETER]
        address = request.scope["path"] + (f"?{urlencode(query)}" if query else "")
        response = RedirectResponse(address, status_code=303)
        for name, value in cookies.items():
            self._set_cookie(request, response, name, value, same_site="lax")
        return self._finished(request, response)

    def _set_cookie(
        self, request: Request, response: Response, name: str, value: str, *, same_site: str, seconds: int | None = None
    ) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path=request.scope["jmsql.base"] or "/",
            secure=request.scope.get("scheme") == "https",
            httponly=True,
            samesite="strict" if same_site == "strict" else "lax",
        )

    def _finished(self, _: Request, response: Response) -> Response:
        response.headers.update(safety.HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        content = files("jmsql.console").joinpath("static", name).read_bytes()
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return self._finished(request, Response(content, media_type=_STATIC[name], headers=headers))

    def _problem(
        self,
        request: Request,
        visitor: Visitor | None,
        status: int,
        advice: str,
        headers: dict[str, str] | None = None,
        title: str | None = None,
    ) -> Response:
        title = title or _TITLES.get(status, "Not done")
        values = self._common(request, visitor) | {"status": status, "advice": advice, "title": title}
        content = self._templates.get_template("problem.html").render(values)
        return self._finished(request, HTMLResponse(content, status_code=status, headers=headers))

    async def _http_error(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        advice = {
            404: "There is no such page. The message or destination may be gone.",
            405: "This address is for forms alone.",
        }.get(status, str(getattr(error, "detail", "")) or "The request cannot be answered.")
        visitor = await self._visitor(request)
        if isinstance(visitor, Response):
            return visitor
        return self._problem(request, visitor, status, advice)

    async def _failure(self, request: Request, error: Exception) -> Response:
        logger.error("A page of the console has failed", exc_info=error)
        return self._problem(request, None, 500, "The console has a defect; its log has the traceback.")


def _located(scope: Scope) -> Scope:
    """Return a request as Starlette routes it, and with the prefix under which links lead back here.

    Frameworks disagree on mounted applications. `root_path` has the prefix, and `path` may begin with it or not; with
    Litestar only `raw_path` tells, and `path` ends with a slash.
    """
    prefix = scope.get("root_path", "").rstrip("/")
    path = scope["path"]
    own = path.removeprefix(prefix) if prefix and (path == prefix or path.startswith(prefix + "/")) else path
    own = "/" + own.strip("/")
    if not prefix:
        whole = unquote(scope.get("raw_path", b"").partition(b"?")[0].decode("latin-1")).rstrip("/")
        prefix = whole.removesuffix(own.rstrip("/")).rstrip("/") if whole.endswith(own.rstrip("/")) else ""
    return {**scope, "root_path": prefix, "path": prefix + own, "jmsql.base": prefix}


async def _form(request: Request) -> Form:
    content = b""
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > _LONGEST_FORM:
                raise HTTPException(413, f"A form has at most {_LONGEST_FORM:,} bytes.")
    except ClientDisconnect as error:
        raise HTTPException(400, "The form has not arrived whole.") from error
    try:
        return Form(parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=10_000))
    except ValueError as error:
        raise HTTPException(400, "The form cannot be read.") from error


def _version(name: str) -> str:
    return hashlib.sha256(files("jmsql.console").joinpath("static", name).read_bytes()).hexdigest()[:12]


class _Loader(PackageLoader):
    """The templates, whose commands name the console's schema."""

    def __init__(self, schema: str) -> None:
        super().__init__("jmsql.console")
        self._schema = schema

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool] | None]:
        source, name, is_current = super().get_source(environment, template)
        return _COMMAND.sub(self._completed, source), name, is_current

    def _completed(self, command: re.Match[str]) -> str:
        completed = with_place(f"`{command[1]}`", self._schema).strip("`")
        return f"<code>{command[1]}{escape(completed.removeprefix(command[1]))}</code>"


def _templates(schema: str) -> Environment:
    environment = Environment(
        loader=_Loader(schema),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "advice": lambda text: presentation.advice(with_place(text, schema)),
        "age": presentation.age,
        "batch_bar": presentation.batch_bar,
        "duration": presentation.duration,
        "moment": presentation.moment,
        "number": presentation.number,
        "placed": lambda text: with_place(text, schema),
        "rate": presentation.rate,
        "seconds": seconds,
        "size": presentation.size,
        "visible": presentation.visible,
    }
    environment.globals |= {
        "dict": dict,
        "group_query": presentation.group_query,
        "query": urlencode,
        "sparkline": presentation.sparkline,
    }
    return environment

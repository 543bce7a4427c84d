"""`jmsql console`."""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from jmsql.cli.options import Schema, Url, open_database

if TYPE_CHECKING:
    from jmsql.console.access import Gate

_USAGE_ERROR = 2
_PASSWORD = "JMSQL_CONSOLE_PASSWORD"  # noqa: S105 - the name of a variable
_TOKEN = "JMSQL_CONSOLE_TOKEN"  # noqa: S105 - the name of a variable
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


def console(
    host: Annotated[str, typer.Option(help="The address on which to answer.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any free one.")] = 8161,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer no actions, and refuse them.")] = False,
    hide_bodies: Annotated[
        bool, typer.Option("--hide-bodies", help="Never read bodies, properties, errors and tracebacks.")
    ] = False,
    user_header: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The header in which a proxy says who has signed in, as X-Forwarded-User."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="The address of that proxy, whose header is believed. May be repeated."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A host name under which the console is reached. May be repeated."),
    ] = None,
    root_path: Annotated[
        str, typer.Option(metavar="/PREFIX", help="The prefix that a proxy cuts off the addresses.")
    ] = "",
    url: Url = None,
    schema: Schema = "jmsql",
) -> None:
    """Show messages and problems in a browser, with actions to solve them.

    It answers on this machine alone, at an address with a token, which it prints. The token is another one each time,
    unless JMSQL_CONSOLE_TOKEN has it. On any other address it needs a password, from JMSQL_CONSOLE_PASSWORD, or a proxy
    that says who has signed in, with --user-header and --proxy; and each --allowed-host.

    It looks at the database while somebody looks at a page, and not otherwise. Each action stands in the log. It needs
    the extra `console`, and a role that may browse; the console can do no more than the role.

    Example: `jmsql console --read-only`
    """
    try:
        from jmsql.console import Console
        from jmsql.console.access import HeaderGate, PasswordGate, TokenGate
        from jmsql.console.serving import server
    except ImportError as error:
        typer.echo(f'jmsql: {error.name} is missing: pip install "jmsql[console]".', err=True)
        raise typer.Exit(_USAGE_ERROR) from error
    password = os.environ.get(_PASSWORD)
    if (user_header is None) != (not proxy):
        raise typer.BadParameter("Give --user-header and --proxy together: the header, and the proxy that sets it.")
    is_local = _is_local(host)
    if not is_local and password is None and user_header is None:
        raise typer.BadParameter(
            f"{host} can be reached from other machines. Set {_PASSWORD} to a password, or name a proxy with "
            "--user-header and --proxy."
        )
    if not is_local and not allowed_host:
        raise typer.BadParameter("Name each host under which the console is reached with --allowed-host.")
    if root_path and not root_path.startswith("/"):
        raise typer.BadParameter("--root-path begins with a slash.")
    listening = _listen(host, port)
    actual_port = listening.getsockname()[1]
    gate: Gate
    address = f"http://{f'[{host}]' if ':' in host else host}:{actual_port}{root_path}/"
    if user_header is not None and proxy:
        gate = HeaderGate(user_header, proxy)
    elif password is not None:
        if not password:
            raise typer.BadParameter(f"{_PASSWORD} is empty.")
        gate = PasswordGate(password)
    else:
        token = os.environ.get(_TOKEN) or secrets.token_urlsafe(24)
        gate = TokenGate(token, actual_port)
        address += f"?token={token}"
    database = open_database(url, schema)
    application = Console(
        database.factory(),
        access=gate,
        read_only=read_only,
        hide_bodies=hide_bodies,
        allowed_hosts=[*(_LOCAL if is_local else ()), *(allowed_host or ())],
    )
    logging.getLogger("jmsql.console").setLevel(logging.INFO)
    typer.echo(f"The console of {database} is at {address}", err=True)
    server(application, root_path=root_path).run(sockets=[listening])


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        typer.echo(f"jmsql: The console cannot answer on {host}:{port}: {error}", err=True)
        raise typer.Exit(_USAGE_ERROR) from error

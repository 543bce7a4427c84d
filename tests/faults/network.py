"""A network between clients and a server that can swallow packets: neither side hears that anything is wrong."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from jmsql.embedded.account import ServerAccount
from jmsql.embedded.installation import find_installation

_CLONE_NEWNET = 0x40000000

_NETWORKS = 8192
"""How many networks can stand side by side, each with eight addresses below 10.224.0.0."""


def can_make_networks() -> bool:
    """Whether network namespaces can be made here: by root, with iproute2."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


class Network:
    """Two hosts, and a router between them. The server's host is this one; clients run in a namespace.

    A context manager; leaving it removes the network.
    """

    def __init__(self) -> None:
        number = os.getpid() % _NETWORKS
        first = ipaddress.ip_address("10.224.0.0") + 8 * number
        addresses = [str(first + n) for n in range(8)]
        self.server_address = addresses[1]
        """The address of this host in the network."""
        self._clients = f"jmsql{number}c"
        self._router = f"jmsql{number}r"
        near, far = f"jm{number}s", f"jm{number}c"
        ports = f"jm{number}rs", f"jm{number}rc"
        self.close()  # of a process before that had the number
        for namespace in (self._clients, self._router):
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("link", "add", near, "type", "veth", "peer", "name", ports[0], "netns", self._router)
        _ip("-n", self._clients, "link", "add", far, "type", "veth", "peer", "name", ports[1], "netns", self._router)
        here: list[str] = []
        clients, router = ["-n", self._clients], ["-n", self._router]
        for host, interface, address in (
            (here, near, addresses[1]),
            (router, ports[0], addresses[2]),
            (router, ports[1], addresses[5]),
            (clients, far, addresses[6]),
        ):
            _ip(*host, "address", "add", f"{address}/30", "dev", interface)
            _ip(*host, "link", "set", interface, "up")
        _ip("-n", self._clients, "route", "add", "default", "via", addresses[5])
        _ip("route", "add", f"{addresses[4]}/30", "via", addresses[2])
        self.pass_on()

    @property
    def clients(self) -> str:
        """The namespace that is the clients' host, for `enter`."""
        return self._clients

    def swallow(self) -> None:
        """Drop every packet from now on, without a word to either side."""
        self._forward(on=False)

    def pass_on(self) -> None:
        """Let packets through from now on."""
        self._forward(on=True)

    def close(self) -> None:
        """Remove the network."""
        for namespace in (self._clients, self._router):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", namespace)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _forward(self, *, on: bool) -> None:
        setting = f"echo {int(on)} > /proc/sys/net/ipv4/ip_forward"
        _ip("netns", "exec", self._router, "sh", "-c", setting)


def enter(namespace: str) -> None:
    """Let this thread, and those that it starts, be on the host that a namespace is."""
    with Path("/run/netns", namespace).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


def listening_programs(directory: Path, address: str) -> Path:
    """Make a directory of PostgreSQL's programs whose servers listen on an address too.

    Args:
        directory: Where to make it; the account of servers must be able to read it.
        address: An address of this host.
    """
    copies = Path("/var/lib/jmsql/programs")
    real = find_installation(ServerAccount.choose(), major=None, programs=None, copies=copies).programs
    programs = directory / "programs"
    programs.mkdir(mode=0o755)
    for name in ("initdb", "postgres"):
        (programs / name).symlink_to(real / name)
    # The options of several --options add up, and the later ones count.
    command = f'exec {shlex.quote(str(real / "pg_ctl"))} "$@" --options "-c listen_addresses={address}"\n'
    (programs / "pg_ctl").write_text(f"#!/bin/sh\n{command}")
    (programs / "pg_ctl").chmod(0o755)
    return programs


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)

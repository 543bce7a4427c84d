"""What tests of the console start from: a console on an empty schema, bare HTTP, and Chromium."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

import jmsql
from jmsql.console import Console, Level, Visitor, poller
from tests.console.http import Browsing
from tests.console.serving import Served, served

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    # One process for all pages, without those that Chromium keeps for the next page and for the last ones.
    *("--renderer-process-limit=1", "--process-per-site", "--in-process-gpu", "--disable-extensions"),
    "--disable-features=SpareRendererForSitePerProcess,BackForwardCache,PaintHolding,Translate,OptimizationHints",
)
ALICE, BOB = Visitor("alice", Level.OPERATE), Visitor("bob", Level.LOOK)


@pytest.fixture(autouse=True)
def waits_for_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has pages wait for the first look however long a slow machine takes for it."""
    monkeypatch.setattr(poller, "_FIRST_LOOK", 60.0)


@pytest.fixture
def serve(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[Callable[..., Served]]:
    """Serves a console with the given settings until the test ends; without `access`, to Alice, who may operate."""
    with ExitStack() as stack:

        def start(**settings: Any) -> Served:
            factory = settings.pop("factory", jmsql_factory)
            port = settings.pop("port", 0)
            settings.setdefault("access", lambda _: ALICE)
            return stack.enter_context(served(Console(factory, **settings), port=port))

        yield start


@pytest.fixture
def console(serve: Callable[..., Served]) -> Browsing:
    """A console that Alice operates, by bare HTTP with cookies."""
    return Browsing(serve())


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    """Chromium, as Debian packages it."""
    if not (Path(CHROMIUM).exists() and Path(DRIVER).exists()):
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(prefix="jmsql-chromium-", ignore_cleanup_errors=True) as profile:
        for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        driver.set_script_timeout(120)
        yield driver
        driver.quit()


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser as a new visitor has it; what it complains of fails the test."""
    chromium.get_log("browser")  # type: ignore[no-untyped-call]
    chromium.delete_all_cookies()
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    yield chromium
    chromium.get("about:blank")

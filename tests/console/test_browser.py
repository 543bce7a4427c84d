"""The pages in Chromium: hostile content, keyboard, screen readers, phones, the dark, and how they stay current."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import psycopg.sql
import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.wait import WebDriverWait
from starlette.requests import Request

import jmsql
from jmsql.admin import Administration
from jmsql.console import Visitor, database
from jmsql.testing import wait_for
from tests.console.conftest import ALICE, BOB
from tests.console.http import Browsing, message_paths
from tests.console.kept_results import keep
from tests.console.serving import Served
from tests.console.test_pages import fail_all, send_all_kinds

pytestmark = pytest.mark.timeout(300)

Serve = Callable[..., Served]

EVIL = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">\"'>&{{7*7}}"
HOSTILE = f"{EVIL}\u202e\u2066\x01\x1b[31m\x85\u2028end"
SCREENSHOTS = "JMSQL_SCREENSHOTS"
"""The environment variable that names the folder for the pictures in the documentation: docs/screenshots."""


def fill(factory: jmsql.ConnectionFactory) -> None:
    """Make what a shop would have: orders, payments that failed, mails that nobody sends, subscriptions."""
    with Administration(factory) as administration:
        administration.create_queue("payments", maximum_deliveries=1)
        administration.create_queue("invoices", history=True)
        administration.create_queue("mails", paused=True)
        administration.subscribe("prices", "web", "symbol = 'ACME'", shared=True)
        administration.subscribe("prices", "risk", shared=True)
    with factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        producer = context.create_producer()
        for number in range(1200):
            message = context.create_text_message(f'{{"order": {number}, "customer": "C-{number % 7}"}}')
            message.set_int_property("weight", number % 9)
            producer.send(jmsql.Queue("orders"), message)
        for name, count in (("payments", 12), ("mails", 40), ("invoices", 3), ("shipments", 25)):
            for number in range(count):
                producer.send(jmsql.Queue(name), f"{name} {number}")
        producer.send(jmsql.Topic("prices"), "12.50")
        context.commit()
    fail_all(factory, "payments", ConnectionError("the bank did not answer within 30 s"))
    with factory.create_context() as context:
        assert context.create_consumer(jmsql.Queue("invoices")).receive(timeout=60) is not None
        with jmsql.batch(context, f"import of {'a' * 200}", on_end="ends") as batch:
            batch.send_many("parts", ["a-f", "g-p", "q-z"])
        assert context.create_consumer(jmsql.Queue("parts")).receive(timeout=60) is not None
    keep(factory.url or "", "invoices", "done", 3, value='{"pages":[1,2],"total":12.50}')
    keep(factory.url or "", "payments", "failed", error="Traceback\nConnectionError: the bank did not answer")


def spoil(factory: jmsql.ConnectionFactory, url: str) -> None:
    """Fill the store with names, bodies, properties and errors that mean something in HTML, or nothing at all."""
    with Administration(factory, actor=HOSTILE) as administration:
        administration.create_queue(HOSTILE, maximum_deliveries=1)
        administration.pause(HOSTILE)
        administration.resume(HOSTILE)
        administration.subscribe(f"topic {EVIL}", HOSTILE, "color = '<b>'", shared=True)
    with factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        for number in range(2):
            message = context.create_text_message(f"{HOSTILE} {number}")
            message.set_string_property("color", HOSTILE)
            message.set_string_property("JMSXGroupID", EVIL)
            message.set_string_property("zero", "a\0b")
            message.jms_type = EVIL
            message.jms_correlation_id = HOSTILE
            context.create_producer().send(jmsql.Queue(HOSTILE), message)
        mapped = context.create_map_message()
        mapped.set_string(HOSTILE, HOSTILE)
        context.create_producer().send(jmsql.Queue("maps"), mapped)
        context.create_producer().send(jmsql.Queue("lines"), "long" * 262_144)
        context.create_producer().send(jmsql.Queue("lines"), "\0nul\0")
        context.commit()
    fail_all(factory, HOSTILE, ValueError(HOSTILE))
    with factory.create_context() as context:
        context.create_producer().send(jmsql.Queue(HOSTILE), HOSTILE)
        with jmsql.batch(context, EVIL, on_end=HOSTILE) as batch:
            batch.send(HOSTILE, HOSTILE)
    keep(url, HOSTILE, "failed", error=HOSTILE)
    keep(url, HOSTILE, "done", value=json.dumps(HOSTILE + EVIL))
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("insert into jmsql_internal.connection (client_id, host, process_id) values (%s, %s, 1)",
                         [EVIL, EVIL])  # fmt: skip


def batch_paths(console: Browsing) -> list[str]:
    """Return the addresses of the batches."""
    return re.findall(r'href="(/batches/\d+)"', console.get("/batches").text)


def result_paths(console: Browsing) -> list[str]:
    """Return the addresses of the list of results and of the results."""
    return ["/results", *re.findall(r'href="(/results/ID:[^"]*)"', console.get("/results").text)]


def paths_of(console: Browsing) -> list[str]:
    """Return an address of each page, and of all messages on first pages."""
    found = [
        "/",
        "/search",
        "/destinations",
        "/rates",
        "/messages?type=<b>&id=<b>",
        "/dead-letters",
        "/clients",
        "/activity",
        "/now",
        "/batches",
        *batch_paths(console),
        *result_paths(console),
    ]
    places = [path for path in console.get("/search").ids.values() if "/destinations/" in path]
    found += [path for path in console.get("/search").ids.values() if "/topics/" in path]
    for path in places:
        messages = message_paths(console.get(path).text)
        found += [path, f"{path}/purge", f"{path}/history", f"{path}/rates", *messages[:2]]
        if messages:
            found.append(f"{path}/retry?key=p5.1")
    return found


def emulate(browser: webdriver.Chrome, *, width: int = 1280, scheme: str = "light") -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    # Without motion, a page has the colours of a scheme at once.
    features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": name, "value": value} for name, value in features.items()]},
    )


def follow(browser: webdriver.Chrome, element: WebElement) -> None:
    """Click what leads to another page, and wait until the browser has left this one."""
    page = browser.find_element(By.TAG_NAME, "html")
    element.click()
    # While it leaves, Chromium may say of the page that it is no part of the document.
    WebDriverWait(browser, 60, ignored_exceptions=[WebDriverException]).until(expected_conditions.staleness_of(page))


def follow_found(browser: webdriver.Chrome, find: Callable[[], WebElement]) -> None:
    """Click what is found in a part of a page that a newer one may replace at any moment."""
    while True:
        with suppress(StaleElementReferenceException):
            return follow(browser, find())


def complaints(browser: webdriver.Chrome) -> list[dict[str, Any]]:
    return list(browser.get_log("browser"))  # type: ignore[no-untyped-call]


def test_hostile_content_is_text_on_every_page(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    spoil(jmsql_factory, jmsql_clean_url)
    console = Browsing(serve())
    emulate(browser)
    paths = paths_of(console)
    assert len(paths) > 20
    for path in paths:
        browser.get(console.served.url(path))
        assert browser.execute_script("return document.title !== 'hacked'"), path
        foreign = browser.execute_script(
            "return [...document.querySelectorAll('main img, main script, main b, main iframe, [style]')].length"
        )
        assert foreign == 0, path
        assert complaints(browser) == [], path
        text = browser.find_element(By.TAG_NAME, "body").text
        assert not any(character in text for character in "\u202e\u2066\x01\x1b\x85\u2028\0"), path
        assert "&49" not in text, path
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), path
    [letters] = [path for name, path in console.get("/search").ids.items() if name == "DLQ"]
    browser.get(console.served.url(message_paths(console.get(letters).text)[0]))
    seen = browser.find_element(By.TAG_NAME, "main").text
    assert EVIL in seen
    assert "[U+202E][U+2066]␁␛[31m[U+0085][U+2028]end" in seen
    assert "a␀b" in seen


def test_selector_and_search_that_are_hostile_are_text(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders")
    console = Browsing(serve())
    for path in ("/search", console.find("orders")):
        browser.get(console.served.url(path))
        field = browser.find_element(By.CSS_SELECTOR, "input[name=selector]" if "dest" in path else "#q")
        field.send_keys("'\"><script>document.title='hacked'</script>", Keys.ENTER)
        wait_for(lambda: "?" in browser.current_url, timeout=60)
        assert browser.title != "hacked"
        assert "<script>" in browser.find_element(By.TAG_NAME, "main").text
        assert complaints(browser) == []


AXE = """
const [rules, done] = arguments;
// What passes is not described, which takes longer than to find it.
axe.run(document, {runOnly: rules, resultTypes: ["violations"]}).then(
  (result) => done(result.violations.map((each) => [each.id, each.nodes.map((node) => node.html).slice(0, 3)])));
"""
COVERED = """
return [...document.querySelectorAll('.stack tbody td:not(.actions)')].filter((cell) => {
  const label = getComputedStyle(cell, '::before'), own = getComputedStyle(cell);
  return label.position === 'absolute' && parseFloat(own.paddingLeft) < parseFloat(label.width);
}).map((cell) => cell.dataset.label);
"""
"""The labels that stand on the values of their cells, where a narrow page shows rows as lists."""
ALL_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
RULES_OF_COLOURS = {"type": "rule", "values": ["color-contrast"]}
"""What another scheme of colours can break."""


def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    fill(jmsql_factory)
    with jmsql_factory.create_context() as context:
        for kind, message in send_all_kinds(context).items():
            context.create_producer().send(jmsql.Queue(kind), message)
    console = Browsing(serve())
    orders = console.find("orders")
    axe = files("axe_core_python").joinpath("axe.min.js").read_text()
    kinds = [message_paths(console.get(console.find(kind)).text)[0] for kind in ("map", "hex", "json", "stream")]
    letters = console.find("DLQ")
    paths = [
        "/", "/search", "/destinations", "/messages?property=weight%3D7", "/dead-letters",
        "/clients", "/activity", "/now", "/schedules", "/batches", *batch_paths(console), *result_paths(console),
        f"{orders}/rates", orders, f"{orders}?selector=a+=+=+1",
        f"{orders}/purge",
        f"{orders}/send", f"{orders}/move", console.find("prices"), console.find("web"),
        f"{console.find('web')}/delete", f"{console.find('invoices')}/history", letters,
        message_paths(console.get(letters).text)[0], "/nowhere", *kinds,
    ]  # fmt: skip
    for path in paths:
        emulate(browser)
        browser.get(console.served.url(path))
        # Not by a script of the page, which its policy would refuse.
        browser.execute_script(axe)
        # The page becomes narrow where it is: it and axe are loaded once.
        for width in (1280, 390):
            for scheme, rules in (("light", ALL_RULES), ("dark", RULES_OF_COLOURS)):
                emulate(browser, width=width, scheme=scheme)
                assert browser.execute_script("return window.innerWidth") == width, path
                assert browser.execute_async_script(AXE, rules) == [], (path, width, scheme)
                assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), path
            assert browser.execute_script(COVERED) == [], (path, width)


def test_all_can_be_read_without_javascript(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    fill(jmsql_factory)
    console = Browsing(serve())
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(console.served.url("/"))
    follow(browser, browser.find_element(By.LINK_TEXT, "orders"))
    body = browser.find_element(By.TAG_NAME, "main")
    assert "1,000+" in body.text
    assert "UTC" in body.text
    follow(browser, browser.find_element(By.LINK_TEXT, "Next messages"))
    browser.find_elements(By.CSS_SELECTOR, "tbody input")[0].click()
    follow(browser, browser.find_element(By.CSS_SELECTOR, "form.chosen button.danger"))
    assert "1 message of queue://orders" in browser.find_element(By.TAG_NAME, "main").text
    follow(browser, browser.find_element(By.CSS_SELECTOR, "form.confirm button"))
    assert browser.find_element(By.CSS_SELECTOR, ".notice").text == "1 message deleted."
    follow(browser, browser.find_element(By.LINK_TEXT, "Activity"))
    assert "alice" in browser.find_element(By.CSS_SELECTOR, "tbody tr").text
    follow(browser, browser.find_element(By.LINK_TEXT, "queue://orders"))
    with Administration(jmsql_factory) as administration:
        assert administration.count("orders") == 1199


@pytest.mark.parametrize("is_off", [False, True], ids=["with JavaScript", "without JavaScript"])
def test_a_selector_that_was_not_shown_limits_the_actions(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory, is_off: bool
) -> None:
    with jmsql_factory.create_context() as context:
        for customer in range(3):
            jmsql.send(context, "orders", "x", properties={"customer": customer})
    console = Browsing(serve())
    orders = console.find("orders")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": is_off})
    browser.get(console.served.url(orders))
    [matching] = browser.find_elements(By.CSS_SELECTOR, ".bulk.all .shown")
    assert matching.text == "(3 as shown)"
    browser.find_element(By.ID, "selector").send_keys("customer > 1")
    assert matching.is_displayed() == is_off
    follow(browser, browser.find_element(By.CSS_SELECTOR, f"button[formaction$='{orders}/purge'][form]"))
    asked = browser.find_element(By.CSS_SELECTOR, "form.confirm").text
    assert "1 message of queue://orders that match customer > 1." in asked
    follow(browser, browser.find_element(By.LINK_TEXT, "Cancel"))
    assert browser.find_element(By.ID, "selector").get_attribute("value") == "customer > 1"
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody input")) == 1


def test_a_double_click_sends_once(
    browser: webdriver.Chrome,
    serve: Serve,
    jmsql_factory: jmsql.ConnectionFactory,
    jmsql_clean_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders")
        methods = []

        def access(request: Request) -> Visitor:
            methods.append(request.method)
            return ALICE

        monkeypatch.setattr(database, "_LONGEST_LOCK_WAIT", 60.0)  # the second click may come late
        console = Browsing(serve(access=access))
        browser.get(console.served.url(f"{console.find('orders')}/send"))
        browser.find_element(By.ID, "text").send_keys("x")
        with psycopg.connect(jmsql_clean_url) as holder:
            holder.execute("lock table jmsql_internal.message in exclusive mode")
            # The second click comes while the first is under way, and the browser submits the form again. The driver
            # waits for a page that a script has begun to leave, so the script has ended by the first click.
            browser.execute_script(
                "const button = document.querySelector('form.confirm button');"
                "for (const delay of [300, 800]) setTimeout(() => button.click(), delay)"
            )
            wait_for(lambda: methods.count("POST") == 2, timeout=60)
            holder.rollback()
        notice = WebDriverWait(browser, 60, ignored_exceptions=[WebDriverException]).until(
            expected_conditions.presence_of_element_located((By.CSS_SELECTOR, ".notice"))
        )
        assert "1 message was sent" in notice.text
        assert administration.count("orders") == 1


def name_of_focused(browser: webdriver.Chrome) -> str:
    """Return the name of the element that has the focus; the page may replace it at any moment by a newer one."""
    while True:
        with suppress(StaleElementReferenceException):
            return browser.switch_to.active_element.accessible_name


def test_pages_are_worked_by_keyboard(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    fill(jmsql_factory)
    console = Browsing(serve())
    browser.get(console.served.url("/clients"))
    page = browser.find_element(By.TAG_NAME, "body")
    page.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the content"
    page.send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "q"
    browser.switch_to.active_element.send_keys("shipments", Keys.ENTER)
    wait_for(lambda: "/destinations/" in browser.current_url, timeout=60)
    assert browser.find_element(By.TAG_NAME, "h1").text == "shipments"
    order = []
    for _ in range(40):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        order.append(name_of_focused(browser))
    assert "Choose all messages of this page" in order
    assert any(name.startswith("Choose message ") for name in order)
    box = browser.find_element(By.CSS_SELECTOR, "th.pick input")
    box.send_keys(Keys.SPACE)
    boxes = browser.find_elements(By.CSS_SELECTOR, "tbody input[type=checkbox]")
    assert len(boxes) == 25
    assert all(each.is_selected() for each in boxes)
    browser.find_element(By.CSS_SELECTOR, "form.chosen button.danger").send_keys(Keys.ENTER)
    wait_for(lambda: "/purge?" in browser.current_url, timeout=60)
    assert "25 messages of queue://shipments" in browser.find_element(By.TAG_NAME, "main").text


def test_times_are_local_with_utc_at_hand(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Queue("orders"), "x")
    console = Browsing(serve())
    [path] = message_paths(console.get(console.find("orders")).text)
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    try:
        browser.get(console.served.url(path))
        time = browser.find_element(By.TAG_NAME, "time")
        hour, minute = (int(part) for part in (time.get_attribute("datetime") or "")[11:16].split(":"))
        local = (hour * 60 + minute + 330) % 1440
        assert time.text[11:16] == f"{local // 60:02}:{local % 60:02}"
        assert f"{hour:02}:{minute:02}:" in (time.get_attribute("title") or "")
        assert (time.get_attribute("title") or "").endswith("UTC")
    finally:
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def test_page_stays_current_and_hidden_tabs_stop(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    console = Browsing(serve())
    browser.get(console.served.url("/"))
    assert "Nothing waits" in browser.find_element(By.ID, "live").text
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Queue("orders"), "x")
    wait_for(lambda: "orders" in browser.find_element(By.ID, "live").text, timeout=60)
    wait_for(lambda: browser.find_element(By.ID, "live-state").text.startswith("Live, "), timeout=60)
    requests = "return performance.getEntriesByType('resource').filter(each => each.name.includes('live=1')).length"
    window = browser.current_window_handle
    browser.execute_script(
        "Object.defineProperty(document, 'visibilityState', {get: () => window.shown || 'hidden', configurable: true})"
    )
    wait_for(lambda: browser.execute_script("return !document.querySelector('.htmx-request')"), timeout=60)
    before = browser.execute_script(requests)
    # Longer than two intervals: nothing else shows that nothing happens.
    browser.execute_async_script("setTimeout(arguments[0], 5000)")
    assert browser.execute_script(requests) == before
    browser.execute_script("window.shown = 'visible'; document.dispatchEvent(new Event('visibilitychange'))")
    wait_for(lambda: browser.execute_script(requests) > before, timeout=60)
    assert browser.current_window_handle == window
    assert complaints(browser) == []


def test_page_is_not_live_while_the_database_does_not_answer(
    browser: webdriver.Chrome, serve: Serve, jmsql_clean_url: str
) -> None:
    console = Browsing(serve())

    def said() -> str:
        return browser.find_element(By.ID, "live-state").text

    def allow(is_allowed: bool) -> None:
        statement = psycopg.sql.SQL("alter database {} allow_connections {}")
        other.execute(statement.format(psycopg.sql.Identifier(name), psycopg.sql.Literal(is_allowed)))

    with psycopg.connect(jmsql_clean_url) as database:
        name = database.info.dbname
    with psycopg.connect(jmsql_clean_url, dbname="postgres", autocommit=True) as other:
        for path, text in (("/", "Not live: the database cannot be looked at"), ("/clients", "Not live: the database")):
            browser.get(console.served.url(path))
            wait_for(lambda: said().startswith("Live, "), timeout=60)
            allow(False)
            try:
                other.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
                wait_for(lambda text=text: said().startswith(text), timeout=60)  # type: ignore[misc]
            finally:
                allow(True)
            wait_for(lambda: said().startswith("Live, "), timeout=60)
    complaints(browser)


def test_second_page_of_clients_stays_the_second(browser: webdriver.Chrome, serve: Serve, jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute(
            "insert into jmsql_internal.connection (client_id, host, process_id) "
            "select 'client ' || n, 'host', n from generate_series(1, 40) n"
        )
    console = Browsing(serve())
    browser.get(console.served.url("/clients"))
    follow(browser, browser.find_element(By.LINK_TEXT, "Further connections"))
    rows = "return document.querySelectorAll('section[aria-labelledby=connected] tbody tr').length"
    assert browser.execute_script(rows) == 15
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute("insert into jmsql_internal.connection (client_id, host, process_id) values ('last', 'h', 1)")
    wait_for(lambda: "last" in browser.find_element(By.ID, "live").text, timeout=60)
    assert browser.execute_script(rows) == 16
    assert "client 40" in browser.find_element(By.ID, "live").text
    assert "client 1 " not in browser.find_element(By.ID, "live").text
    assert complaints(browser) == []


def test_page_lives_on_when_the_server_was_started_again(
    browser: webdriver.Chrome, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    from jmsql.console import Console
    from tests.console.serving import served

    with served(Console(jmsql_factory, access=lambda _: ALICE)) as first:
        port = first.port
        browser.get(first.url("/"))
    wait_for(lambda: "does not answer" in browser.find_element(By.ID, "live-state").text, timeout=60)
    assert "Nothing waits" in browser.find_element(By.ID, "live").text
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Queue("orders"), "x")
    with served(Console(jmsql_factory, access=lambda _: ALICE), port=port) as second:
        wait_for(lambda: browser.find_elements(By.LINK_TEXT, "orders"), timeout=60)
        follow_found(browser, lambda: browser.find_element(By.LINK_TEXT, "orders"))
        follow(browser, browser.find_element(By.PARTIAL_LINK_TEXT, "Pause"))
        follow(browser, browser.find_element(By.CSS_SELECTOR, "form.confirm button"))
        assert browser.find_element(By.CSS_SELECTOR, ".notice").text == "queue://orders is paused."
        assert second.port == port
        browser.get("about:blank")
    complaints(browser)


def test_a_visitor_who_may_only_look_sees_no_buttons(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    fill(jmsql_factory)
    console = Browsing(serve(access=lambda _: BOB))
    letters = console.find("DLQ")
    for path in ("/", "/dead-letters", letters, console.find("web"), message_paths(console.get(letters).text)[0]):
        browser.get(console.served.url(path))
        names = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "main .button, main button")]
        assert set(names) <= {"Show"}, path
        assert browser.find_elements(By.CSS_SELECTOR, "main input[type=checkbox]") == []


def test_screenshots_of_the_main_pages(
    browser: webdriver.Chrome,
    serve: Serve,
    jmsql_factory: jmsql.ConnectionFactory,
    jmsql_clean_url: str,
    tmp_path: Path,
) -> None:
    """The documentation's are made so: JMSQL_SCREENSHOTS=docs/screenshots pytest tests/console -k screenshots."""
    fill(jmsql_factory)
    with psycopg.connect(jmsql_clean_url) as database:  # no picture shows where the tests are
        database.execute(
            "update jmsql_internal.message set properties = replace(properties::text, %s, '/srv/shop')::jsonb "
            "where properties ? 'JMS_jmsql_LastError'",
            [str(Path(__file__).parents[2])],
        )
        database.execute(
            "delete from jmsql_internal.rate; insert into jmsql_internal.rate "
            "select queue_id, date_trunc('minute', now()) - make_interval(mins => n), 300 + (200 * sin(n))::integer, "
            "280 + (150 * cos(n))::integer, case when mod(n, 7) = 0 then n else 0 end, 0, "
            "420000000::bigint * (1 + mod(n, 5)), 280, 70000000::bigint * (1 + mod(n, 3)) "
            "from jmsql_internal.queue, generate_series(1, 14) n where name = 'orders'"
        )
    folder = Path(os.environ.get(SCREENSHOTS) or tmp_path)
    folder.mkdir(exist_ok=True)
    console = Browsing(serve())
    letters = console.find("DLQ")
    pages = {
        "overview": ("/", 1280, "light"),
        "overview-dark": ("/", 1280, "dark"),
        "overview-phone": ("/", 390, "light"),
        "queue": (f"{console.find('orders')}?selector=weight+%3E+7", 1280, "light"),
        "dead-letters": ("/dead-letters", 1280, "light"),
        "destinations": ("/destinations", 1280, "light"),
        "rates": (f"{console.find('orders')}/rates", 1280, "light"),
        "dead-letter": (message_paths(console.get(letters).text)[0], 1280, "dark"),
    }
    for name, (path, width, scheme) in pages.items():
        emulate(browser, width=width, scheme=scheme)
        browser.get(console.served.url(path))
        taken = browser.execute_cdp_cmd(
            "Page.captureScreenshot",
            {"clip": {"x": 0, "y": 0, "width": width, "height": 900, "scale": 1}, "captureBeyondViewport": True},
        )
        image = base64.b64decode(taken["data"])
        assert image.startswith(b"\x89PNG")
        assert len(image) > 20_000
        (folder / f"console-{name}.png").write_bytes(image)

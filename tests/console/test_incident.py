"""The tasks of an incident, by the clicks that each takes from the first screen: at most four."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

import jmsql
from jmsql.admin import Administration
from jmsql.testing import wait_for
from tests.console.http import Browsing
from tests.console.kept_results import keep
from tests.console.serving import Served
from tests.console.test_browser import follow, follow_found
from tests.console.test_pages import fail_all

pytestmark = pytest.mark.timeout(300)

Serve = Callable[..., Served]
MOST_CLICKS = 4

TASKS: dict[str, tuple[list[str], str]] = {
    "what is wrong": ([], "3 messages of queue://payments died within the last hour, all of ConnectionError"),
    "who holds it": (["Now", "connection "], "Holds"),
    "why did it fail": (["Dead letters", "ConnectionError: the bank"], "Traceback"),
    "the message's group": (["orders", "(first message)", "g"], "JMSXGroupID"),
    "find by property": (["Search", "property: customer = 3", "Search", "(first message)"], "order 3"),
    "the slow consumer": (["Now"], "connection "),
    "what did a colleague do": (["Activity"], "bob"),
    "how did a job end": (["Results", "ID:"], "ValueError: no such customer"),
    "retry one": (["Dead letters", "ConnectionError: the bank", "Retry …", "Retry dead letters"], "went back"),
    "retry all of one error": (["Dead letters", "Retry …", "Retry dead letters"], "went back"),
    "deliver now": (["orders", "Deliver now …", "Deliver messages now"], "can be received now"),
    "cancel": (["orders", "(first message)", "Cancel delivery …", "Cancel the message"], "is cancelled"),
    "pause": (["orders", "Pause …", "Pause delivery"], "is paused"),
    "move": (["orders", "Move …", "to: other", "Move messages"], "moved to other"),
    "purge": (["Destinations", "other", "Delete …", "Delete messages"], "deleted"),
}
"""The texts of what is clicked, one after the other, and a text of the last page. A text with a colon is typed."""

CLICKABLE = """
return [...document.querySelectorAll("a, button:not(form.chosen button)")].filter(
  (each) => each.checkVisibility() && each.innerText.trim().startsWith(arguments[0]));
"""


@contextmanager
def incident(factory: jmsql.ConnectionFactory) -> Iterator[None]:
    """Yield while a client holds a message, others have failed, and others wait."""
    with Administration(factory, actor="bob") as administration:
        administration.create_queue("payments", maximum_deliveries=1)
        administration.create_queue("other")
        administration.resume("other")
        administration.alter("other", maximum_deliveries=3)
        with factory.create_context() as context:
            for number in range(3):
                jmsql.send(context, "payments", f"payment {number}")
            for number in range(5):
                jmsql.send(context, "orders", f"order {number}", properties={"customer": number}, group="g")
            jmsql.send(context, "orders", "later", delivery_delay=3600.0)
            jmsql.send(context, "mails", "held")
        keep(factory.url or "", "orders", "failed", error="Traceback\nValueError: no such customer")
        fail_all(factory, "payments", ConnectionError("the bank did not answer"))
        with factory.create_context(session_mode=jmsql.AcknowledgeMode.CLIENT) as holder:
            assert holder.create_consumer(jmsql.Queue("mails")).receive(timeout=60) is not None
            wait_for(lambda: any(each.held and each.consumers for each in administration.now()))
            yield


def clicked(browser: webdriver.Chrome, text: str) -> None:
    """Click the first link or button with this text, but none for chosen messages."""

    def find() -> WebElement:
        found: list[WebElement] = browser.execute_script(CLICKABLE, text)
        assert found, (text, browser.find_element(By.TAG_NAME, "main").text)
        return found[0]

    follow_found(browser, find)


def test_each_task_of_an_incident_takes_few_clicks(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with incident(jmsql_factory):
        console = Browsing(serve())
        wait_for(lambda: "ConnectionError" in console.get("/").text)
        for task, (steps, said) in TASKS.items():
            browser.get(console.served.url("/"))
            clicks = sum(done(browser, step) for step in steps)
            shown = browser.find_element(By.TAG_NAME, "main").text
            assert said in shown or said in browser.current_url, (task, shown)
            assert clicks <= MOST_CLICKS, task


def done(browser: webdriver.Chrome, step: str) -> bool:
    """Do a step, and tell whether it was a click."""
    name, _, text = step.partition(": ")
    if name in {"to", "property"}:
        browser.find_element(By.NAME, name).send_keys(text)
        return False
    if step == "(first message)":
        follow_found(browser, lambda: browser.find_element(By.CSS_SELECTOR, "tbody th a[href*='/messages/']"))
    elif step == "Search" and browser.find_elements(By.CSS_SELECTOR, "form.terms"):
        follow(browser, browser.find_element(By.CSS_SELECTOR, "form.terms button"))
    else:
        clicked(browser, step)
    return True

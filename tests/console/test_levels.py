"""Each action in Chromium, at each level: what is offered can be done, and what is not offered is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

import jmsql
from jmsql.admin import Administration
from jmsql.console import Visitor
from tests.console.conftest import ALICE, BOB
from tests.console.http import Browsing, message_paths
from tests.console.serving import Served
from tests.console.test_actions import role, send, texts
from tests.console.test_browser import complaints, follow
from tests.console.test_pages import fail_all

pytestmark = pytest.mark.timeout(300)

Serve = Callable[..., Served]


@dataclass(frozen=True)
class Case:
    """An action: where its button is, what it is called, and what the page after it says."""

    page: str
    button: str
    said: str
    chosen: int = 0
    of_message: bool = False
    fields: dict[str, str] = field(default_factory=dict)


ACTIONS = {
    "pause a queue": Case("orders", "Pause …", "queue://orders is paused."),
    "resume a queue": Case("mails", "Resume …", "Delivery goes on."),
    "pause a topic": Case("prices", "Pause …", "topic://prices is paused."),
    "resume a topic": Case("news", "Resume …", "Delivery goes on."),
    "send to a queue": Case("orders", "Send a text …", "1 message was sent: ID:", fields={"text": "hello"}),
    "publish on a topic": Case("prices", "Publish a text …", "1 message was sent: ID:", fields={"text": "hello"}),
    "delete a subscription": Case(
        "risk", "Delete the subscription …", "The subscription risk was deleted.", fields={"name": "risk"}
    ),
    "delete chosen messages": Case("orders", "Delete …", "2 messages deleted.", chosen=2),
    "delete all messages": Case("orders", "Delete …", "4 messages deleted."),
    "delete one message": Case("orders", "Delete …", "1 message deleted.", of_message=True),
    "delete messages of a subscription": Case("risk", "Delete …", "1 message deleted.", chosen=1),
    "move chosen messages": Case("orders", "Move …", "2 messages moved to other.", chosen=2, fields={"to": "other"}),
    "move all messages": Case("orders", "Move …", "4 messages moved to other.", fields={"to": "other"}),
    "move one message": Case(
        "orders", "Move …", "1 message moved to other.", of_message=True, fields={"to": "other"}
    ),
    "cancel a message": Case("orders", "Cancel delivery …", "The message is cancelled", of_message=True),
    "deliver chosen messages": Case("reports", "Deliver now …", "2 messages can be received now.", chosen=2),
    "deliver all messages": Case("reports", "Deliver now …", "3 messages can be received now."),
    "deliver one message": Case("reports", "Deliver now …", "1 message can be received now.", of_message=True),
    "retry chosen dead letters": Case("DLQ", "Retry …", "2 messages went back to where they come from.", chosen=2),
    "retry all dead letters": Case("DLQ", "Retry …", "3 messages went back to where they come from."),
    "retry one dead letter": Case("DLQ", "Retry …", "1 message went back to where they come from.", of_message=True),
    "retry a group of dead letters": Case(
        "/dead-letters", "Retry …", "3 messages went back to where they come from."
    ),
}  # fmt: skip


BUTTONS = """
const [text, isForChosen] = arguments;
return [...document.querySelectorAll("main .button, main button")].filter(
  (each) => each.innerText.trim() === text && each.matches("form.chosen button") === isForChosen);
"""


@pytest.fixture
def filled(jmsql_factory: jmsql.ConnectionFactory) -> None:
    """A store in which each action has something to do."""
    with Administration(jmsql_factory) as administration:
        administration.create_queue("other")
        administration.create_queue("payments", maximum_deliveries=1)
        administration.create_queue("mails", paused=True)
        administration.create_topic("news")
        administration.pause("topic://news")
        administration.subscribe("prices", "risk", shared=True)
    send(jmsql_factory, "orders", *"abcd")
    send(jmsql_factory, "reports", *"abc", delivery_delay=3600.0)
    send(jmsql_factory, "payments", *"abc")
    fail_all(jmsql_factory, "payments", ConnectionError("the bank did not answer"))
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Topic("prices"), "x")


def open_page(browser: webdriver.Chrome, console: Browsing, case: Case) -> None:
    """Open the page that has the button of an action, and choose what it is for."""
    path = case.page if case.page.startswith("/") else console.find(case.page)
    if case.of_message:
        path = message_paths(console.get(path).text)[0]
    browser.get(console.served.url(path))
    for box in browser.find_elements(By.CSS_SELECTOR, "tbody input[type=checkbox]")[: case.chosen]:
        box.click()


def buttons(browser: webdriver.Chrome, case: Case) -> list[Any]:
    """The buttons of an action: those for chosen messages are in the form of the list, the others are not."""
    found: list[Any] = browser.execute_script(BUTTONS, case.button, bool(case.chosen))
    return found


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("name", ACTIONS)
def test_an_operator_is_offered_each_action_and_it_is_done(browser: webdriver.Chrome, serve: Serve, name: str) -> None:
    case, console = ACTIONS[name], Browsing(serve())
    open_page(browser, console, case)
    [button] = buttons(browser, case)
    follow(browser, button)
    for field_name, value in case.fields.items():
        browser.find_element(By.NAME, field_name).send_keys(value)
    follow(browser, browser.find_element(By.CSS_SELECTOR, "form.confirm button"))
    assert browser.find_element(By.CSS_SELECTOR, ".notice").text.startswith(case.said)
    assert complaints(browser) == []
    browser.refresh()
    assert browser.find_elements(By.CSS_SELECTOR, ".notice") == []  # it is said once, and done once


LEVELS: dict[str, dict[str, Any]] = {
    "a visitor who may look": {"access": lambda _: BOB},
    "a console that is read-only": {"read_only": True},
    "a role that may browse alone": {"role": "browser of all"},
    "a role that may receive": {"role": "receiver from all"},
}


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("level", LEVELS)
def test_a_visitor_without_the_right_is_offered_no_action_and_refused_each(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str, level: str
) -> None:
    settings = dict(LEVELS[level])
    kind = settings.pop("role", None)
    operator = Browsing(serve())
    if kind is None:
        _assert_nothing_can_be_done(browser, Browsing(serve(**settings)), operator, may_unsubscribe=False)
    else:
        with role(jmsql_clean_url, kind) as url:
            console = Browsing(serve(factory=jmsql.ConnectionFactory(url)))
            _assert_nothing_can_be_done(browser, console, operator, may_unsubscribe="receiver" in kind)
    assert texts(jmsql_factory, "orders") == list("abcd")
    assert len(texts(jmsql_factory, "DLQ")) == 3


def _assert_nothing_can_be_done(
    browser: webdriver.Chrome, console: Browsing, operator: Browsing, *, may_unsubscribe: bool
) -> None:
    console.get("/")  # which gives the key of its forms
    opened = None
    for name, case in sorted(ACTIONS.items(), key=lambda each: (each[1].page, each[1].of_message)):
        if opened != (opened := (case.page, case.of_message)):
            open_page(browser, console, case)
            assert browser.find_elements(By.CSS_SELECTOR, "main input[type=checkbox]") == [], name
        assert buttons(browser, case) == [], name
        if may_unsubscribe and "subscription" in name:
            continue  # who may receive from a topic may end its subscriptions, by JMS
        path = console.find("DLQ" if case.page.startswith("/") else case.page)
        action = {"Publish": "send"}.get(case.button.split()[0], case.button.split()[0].lower())
        action = "purge" if case.button == "Delete …" else action
        fields = [(key, value) for key, value in operator.form(f"{path}/{action}") if key != "form_key"]
        form_key = console.cookies["jmsql-console-form"]
        answer = console.post(
            f"{path}/{action}", [("form_key", form_key), *fields, *case.fields.items(), ("priority", "4")]
        )
        assert answer.status in {403, 409}, (name, answer.status, answer.text)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("answer", [None, Visitor("eve", ALICE.level)], ids=["nobody", "forged"])
def test_strangers_see_no_page_and_do_nothing(
    browser: webdriver.Chrome, serve: Serve, jmsql_factory: jmsql.ConnectionFactory, answer: Visitor | None
) -> None:
    operator = Browsing(serve())
    served = serve(access=lambda _: answer)
    stranger = Browsing(served)
    for case in ACTIONS.values():
        path = operator.find("DLQ" if case.page.startswith("/") else case.page)
        fields = operator.form(f"{path}/{'purge' if '/destinations/' in path else 'pause'}")
        for action in ("purge", "move", "retry", "pause", "resume", "send", "delete"):
            assert stranger.post(f"{path}/{action}", fields, {"Origin": "https://evil.example"}).status in {403, 404}
        if answer is None:
            browser.get(served.url(path))
            assert "orders" not in browser.find_element(By.TAG_NAME, "body").text
            assert browser.find_elements(By.TAG_NAME, "nav") == []
    assert texts(jmsql_factory, "orders") == list("abcd")

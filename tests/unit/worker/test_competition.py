"""Listeners of one application that take each other's messages."""

from __future__ import annotations

from jmsql import Topic
from jmsql.worker import Application
from jmsql.worker.competition import competing


def test_listeners_of_one_queue_without_selectors_compete() -> None:
    application = Application()

    def first(body: str) -> None: ...
    def second(body: str) -> None: ...

    for handler in (first, second):
        application.listener("orders")(handler)
        application.listener("chosen", selector=f"name = '{handler.__name__}'")(handler)
        application.listener(Topic("news"), subscription=handler.__name__)(handler)
        application.listener(Topic("prices"), subscription="desk")(handler)
    names = [f"{__name__}.{handler.__qualname__}" for handler in (first, second)]
    found = competing([listener.facts(1) for listener in application.listeners])
    assert found == {"queue://orders": names, "topic://prices of the subscription 'desk'": names}

"""The console: messages, problems and their solutions in a browser (the extra ``console``).

[`Console`][jmsql.console.Console] is an ASGI application; `jmsql console` serves it by itself.
"""

try:
    from jmsql.console.access import Access, Level, Visitor
    from jmsql.console.actions import ActionRecord
    from jmsql.console.application import Console
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error.name} is missing: pip install "jmsql[console]".', name=error.name) from error

__all__ = ["Access", "ActionRecord", "Console", "Level", "Visitor"]

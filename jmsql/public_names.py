"""The names that programs import say that they come from where programs import them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Named = TypeVar("_Named", bound=Callable[..., Any])


def set_module(module: str) -> Callable[[_Named], _Named]:
    """Return a decorator that sets the `__module__` of a public class or function.

    So tracebacks, `repr`, pickles and documentation show `jmsql.ConnectionFactory`, and a class can move to another
    module without breaking pickles. It stands above all other decorators: `dataclass` reads the `__module__`.
    """

    def decorate(named: _Named) -> _Named:
        named.__module__ = module
        return named

    return decorate

"""The names that programs import say that they come from where programs import them."""

from __future__ import annotations

import sys
from types import FunctionType

__all__ = ["claim_public_names"]


def claim_public_names(module: str) -> None:
    """Set the `__module__` of a public module's classes and functions to that module.

    So tracebacks, `repr`, pickles and documentation show `jmsql.ConnectionFactory`, and where a class is defined can
    change without breaking what was pickled.

    Args:
        module: The module's `__name__`; its `__all__` lists the names.
    """
    namespace = vars(sys.modules[module])
    for name in namespace["__all__"]:
        value = namespace.get(name)
        if isinstance(value, type | FunctionType):  # a type alias is neither, and has no module of its own
            value.__module__ = module

"""Finding the application that the command line names."""

from __future__ import annotations

import importlib

from jmsql.worker.application import Application

__all__ = ["RefusalError", "load_application"]


class RefusalError(Exception):
    """Why a worker cannot run, in a line."""


def load_application(reference: str) -> Application:
    """Import the application.

    Args:
        reference: ``package.module:name``.

    Raises:
        RefusalError: There is none of that name, it has no listeners, or its module cannot be imported.
    """
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise RefusalError(f"{reference!r} names no application; write package.module:name.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise RefusalError(
                f"There is no module {error.name!r} here; run the command where it can be imported, or set PYTHONPATH."
            ) from error
        raise RefusalError(f"{module_name} cannot be imported: {error}") from error
    except Exception as error:
        raise RefusalError(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    application = getattr(module, name, None)
    if not isinstance(application, Application):
        found = "has no" if application is None else "has another"
        raise RefusalError(f"{module_name} {found} {name!r}; make it a jmsql.worker.Application.")
    if not application.listeners:
        raise RefusalError(f"{reference} has no listeners; register some with @{name}.listener('…').")
    if application.factory is not None and application.factory.client_id is not None:
        raise RefusalError(
            f"The factory of {reference} has a client identifier, and only one of a worker's processes could have it; "
            "leave it out. Subscriptions are shared by their names."
        )
    return application

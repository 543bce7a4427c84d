"""Finding the application that the command line names."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from jmsql.exceptions import IllegalStateException, JMSException

if TYPE_CHECKING:
    from jmsql.values.destinations import Destination
    from jmsql.worker.application import Application
    from jmsql.worker.handlers.listener import Listener


# Mistakes of the first start are named with a way out: a module that cannot be imported from here, an application
# without listeners because no module imports those that register them, a pattern of `--only` without a match.
# `RefusalError` has the reason in a line; the traceback of an application's own failure begins at its own lines.


_REGISTERS = re.compile(r"^ *@\w+\.listener\(", re.MULTILINE)
_MOST_SHOWN = 5


class RefusalError(Exception):
    """The reason why a worker cannot run, in a line."""

    def __init__(self, reason: str, traceback: str | None = None) -> None:
        super().__init__(reason)
        self.traceback = traceback


def split_reference(reference: str) -> tuple[str, str]:
    """Return the module and the name of an application, without importing anything.

    Raises:
        RefusalError: The reference has not both.
    """
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise RefusalError(f"Expected MODULE:NAME of an application, such as shop.messaging:app, got {reference!r}.")
    return module_name, name


def load_application(reference: str) -> Application:
    """Import the application.

    Raises:
        RefusalError: There is none of that name, it has no listeners, or its module cannot be imported; or a handler
            could read no message.
    """
    module_name, name = split_reference(reference)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise RefusalError(
                f"There is no module {error.name!r} here; run the command where it can be imported, or set PYTHONPATH."
            ) from error
        raise _failed_import(module_name, error) from error
    except (Exception, SystemExit) as error:
        raise _failed_import(module_name, error) from error
    from jmsql.client.transaction_of_caller import kind_of
    from jmsql.worker.application import Application
    from jmsql.worker.handlers.body_checks import check_bodies

    application = getattr(module, name, None)
    if not isinstance(application, Application):
        if application is None:
            known = sorted(key for key, value in vars(module).items() if isinstance(value, Application))
            way = f"did you mean {module_name}:{known[0]}?" if known else "make it a jmsql.worker.Application."
            raise RefusalError(f"{module_name} has no {name!r}; {way}")
        raise RefusalError(f"Expected {reference} to be a jmsql.worker.Application, got {kind_of(application)}.")
    if not application.listeners:
        raise RefusalError(f"{reference} has no listeners{_way_to_listeners(application, module_name, name)}")
    try:
        check_bodies(application.listeners, application.schedules)
    except (TypeError, IllegalStateException) as error:
        raise RefusalError(str(error)) from error
    if application.factory is not None and application.factory.client_id is not None:
        raise RefusalError(
            f"The factory of {reference} has a client identifier, and only one of a worker's processes could have it; "
            "leave it out. Subscriptions are shared by their names."
        )
    return application


def choose_listeners(
    listeners: Sequence[Listener], only: Sequence[str] = (), without: Sequence[str] = ()
) -> list[Listener]:
    """Return the listeners whose destinations are chosen.

    Args:
        listeners: All of the application.
        only: Patterns of destinations, each perhaps several that commas separate. Default: all destinations.
        without: Patterns to exclude, which take precedence.

    Raises:
        RefusalError: A pattern matches no listener, or none is left.
    """
    wanted, left_out = _matching(listeners, "--only", only), _matching(listeners, "--except", without)
    chosen = [each for each in listeners if (not only or each in wanted) and each not in left_out]
    if not chosen:
        raise RefusalError(f"--only and --except leave no listener of {_destinations(listeners)}.")
    return chosen


def _matching(listeners: Sequence[Listener], option: str, patterns: Sequence[str]) -> list[Listener]:
    found: list[Listener] = []
    for pattern in (part.strip() for text in patterns for part in text.split(",")):
        matching = [each for each in listeners if _matches(each.destination, pattern)]
        if not matching:
            raise RefusalError(
                f"No listener has the destination {option} {pattern!r}. They have {_destinations(listeners)}."
            )
        found += matching
    return found


def _matches(destination: Destination, pattern: str) -> bool:
    return fnmatchcase(destination.uri if "://" in pattern else destination.name, pattern)


def _destinations(listeners: Iterable[Listener]) -> str:
    return ", ".join(sorted({each.destination.uri for each in listeners}))


def _way_to_listeners(application: Application, module_name: str, name: str) -> str:
    """Return advice for an application without listeners: modules that are not imported may register some."""
    found = sorted(_registering_modules(application.packages or (module_name.partition(".")[0],)))
    if not found:
        return f"; register some with @{name}.listener('…')."
    shown = ", ".join(found[:_MOST_SHOWN]) + (", …" if len(found) > _MOST_SHOWN else "")
    which = "it is" if len(found) == 1 else "they are"
    if application.packages:
        return f": {shown} may register some, but Django imports the module `messages` of each app: import it there."
    advice = f"Name one, {found[0]}:{name}, or have" if len(found) == 1 else "Have"
    return f": {shown} may register some, but {which} not imported. {advice} {module_name} import at its end what does."


def _registering_modules(packages: Iterable[str]) -> Iterator[str]:
    """Return the modules of packages that look as if they register listeners, and were not imported."""
    for package in packages:
        module = sys.modules.get(package)
        for directory in getattr(module, "__path__", ()):
            for file in Path(directory).rglob("*.py"):
                parts = (package, *file.relative_to(directory).with_suffix("").parts)
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                if name not in sys.modules and _REGISTERS.search(file.read_text(errors="replace")):
                    yield name


def _failed_import(module_name: str, error: BaseException) -> RefusalError:
    says = str(error).partition("\n")[0]
    kind = "" if isinstance(error, ModuleNotFoundError) else f"{type(error).__name__}: "
    return RefusalError(f"{module_name} cannot be imported: {kind}{says}", _traceback(error))


def _traceback(error: BaseException) -> str:
    """Return the traceback of an application's own lines, without those that have imported it."""
    frames = error.__traceback__
    while frames is not None and _imports(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    chain = not isinstance(error, JMSException)  # its causes have frames in jmsql alone
    return "".join(traceback.format_exception(type(error), error, frames, chain=chain)).rstrip()


def _imports(file: str) -> bool:
    return file in {__file__, importlib.__file__} or file.startswith("<frozen importlib")

"""The values of a command's parameters: a value that already has its type is not converted.

Typer converts by pydantic, which takes a quarter of the time in which a command starts. It does so even for defaults,
and for text that stays text.
"""

from __future__ import annotations

import inspect
import types
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import typer

IDENTIFIER = "NUMBER"
"""The metavar of an option that takes an identifier of 64 bits, as arguments do."""

_LARGEST = 2**63 - 1000
"""Bound of seconds and of identifiers; a statement may add some to it before PostgreSQL's bigint ends."""

_LARGEST_COUNT = 2**31 - 1000
"""Bound of all other integers, which PostgreSQL's integer holds."""


def convert_only_what_needs_it(command: Any) -> None:
    """Have the parameters of a command, or of all in a group, take a value as it is where that has their type."""
    get_params = command.get_params

    @cache
    def kinds() -> dict[str, Any]:
        return {} if command.callback is None else get_type_hints(inspect.unwrap(command.callback))

    def params(context: Any) -> list[Any]:
        parameters: list[Any] = get_params(context)
        for parameter in parameters:
            if not isinstance(parameter.process_value, _Processing):
                parameter.process_value = _Processing(parameter, _without_none(kinds().get(parameter.name)))
        return parameters

    command.get_params = params
    for each in getattr(command, "commands", {}).values():
        convert_only_what_needs_it(each)


class _Processing:
    """Processes a parameter's value."""

    def __init__(self, parameter: Any, kind: Any) -> None:
        self._parameter = parameter
        self._convert = parameter.process_value
        self._kind = kind

    def __call__(self, context: Any, value: Any) -> Any:
        parameter = self._parameter
        if value is None and not parameter.required:
            value = () if parameter.multiple or parameter.nargs == -1 else None
        elif type(value) is not self._kind:
            return self._bounded(context, self._convert(context, value))
        return value if parameter.callback is None else parameter.callback(context, parameter, value)

    def _bounded(self, context: Any, value: Any) -> Any:
        """Refuse a number that is too large by its option's name; PostgreSQL would name none."""
        parameter = self._parameter
        is_identifier = parameter.param_type_name == "argument" or parameter.metavar == IDENTIFIER
        largest = _LARGEST_COUNT if isinstance(value, int) and not is_identifier else _LARGEST
        if isinstance(value, int | float) and not -largest <= value <= largest:  # NaN is not, either
            raise typer.BadParameter(f"Expected a number up to {largest:,}, got {value}.", ctx=context, param=parameter)
        return value


def _without_none(kind: Any) -> Any:
    """Return the type of a value for a parameter that may be left out."""
    if get_origin(kind) not in {Union, types.UnionType}:
        return kind
    [given] = (each for each in get_args(kind) if each is not types.NoneType)
    return given

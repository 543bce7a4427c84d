"""The types of a chain: a step's return value beside the body that the next step takes."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jmsql.client._sync.connection.simplified import message_of
from jmsql.exceptions import MessageFormatException
from jmsql.messages.codecs.registry import is_registered
from jmsql.messages.codecs.schemas import describes_itself, schema_of
from jmsql.worker.handlers.bodies import body_schema, is_optional, members_of

if TYPE_CHECKING:
    from jmsql.worker.handlers.listener import Listener

# A chain is refused only where its annotations leave no way. A text may hold any JSON, a subclass other fields than its
# base, and a validator may reshape what it is given: these pass, and the step's message decides.


_EXAMPLES: Mapping[Any, tuple[object, ...]] = {
    bool: (True,),
    int: (0, 5),
    float: (0.0, 1.5),
    Decimal: (Decimal(5),),
    datetime: (datetime(2026, 11, 29, tzinfo=None), datetime(2026, 11, 29, 12, 5)),  # noqa: DTZ001
    date: (date(2026, 11, 29),),
    time: (time(12, 5),),
    timedelta: (timedelta(days=1), timedelta(seconds=5)),
    UUID: (UUID(int=5),),
}
"""Values of the classes whose values a step takes all alike, or refuses all alike."""
_ARRAYS = {list, tuple, set, frozenset, Sequence, Iterable}
_OBJECTS = {dict, Mapping}


def misfit(giver: Listener, taker: Listener, *, in_chain: bool = True) -> str | None:
    """Return the reason why a step can read nothing that the step before returns; None: it may be able to.

    Args:
        giver: The listener of the step before.
        taker: The listener of the step.
        in_chain: True if the body of the message goes on where None is returned; else nothing is sent then.
    """
    returned = _returned(giver.handler)
    if giver.chunk is not None or returned is None or taker.body in {None, Any, object}:
        return None
    members = [each for each in members_of(returned) if each is not NoneType]
    if in_chain and (returned is NoneType or is_optional(returned)):
        members += [None] if giver.body is None else members_of(giver.body)
    reasons = [_misfit_of(each, taker) for each in members]
    return None if None in reasons or not reasons else reasons[0]


def _returned(handler: Callable[..., object]) -> Any:
    """Return the annotation of a handler's result; None: it has none, or one that says nothing."""
    try:
        found = inspect.signature(handler, eval_str=True).return_annotation
    except (NameError, AttributeError, TypeError, ValueError):  # of classes that only type checkers see
        return None
    if found is None:
        return NoneType
    return None if found in {inspect.Signature.empty, Any, object} else found


def _misfit_of(given: Any, taker: Listener) -> str | None:
    """Return the reason why a step can read no value of a type."""
    taken = _shown(taker.body)
    if given in _EXAMPLES:
        examples = _EXAMPLES[given]
        return None if any(_accepts(taker, each) for each in examples) else f"{_shown(given)} is no {taken}"
    origin = typing.get_origin(given) or given
    is_model = isinstance(given, type) and describes_itself(given) and not is_registered(given)
    kind = "array" if origin in _ARRAYS else "object" if origin in _OBJECTS or is_model else None
    kinds = _kinds_of(taker.body)
    if kind is None or kinds is None:
        return None
    if kinds == {"text"}:
        return None if is_model else f"{_shown(given)} is no {taken}"
    if kind not in kinds:
        return f"{_shown(given)} is no {taken}"
    missing = _missing_fields(given, taker.body) if is_model else []
    return f"{_shown(given)} has no {' and no '.join(map(repr, missing))}, which {taken} needs" if missing else None


def _accepts(taker: Listener, value: object) -> bool:
    try:
        taker.checked_message(message_of(value))
    except MessageFormatException:
        return False
    return True


def _kinds_of(annotation: Any) -> set[str] | None:
    """Return the kinds of JSON that a body may be, or "text"; None: it may be any."""
    try:
        if body_schema(annotation) is None:
            return None if set(members_of(annotation)) & {Any, object} else {"text"}
        kinds = {_kind_of(each) for each in members_of(annotation)}
    except TypeError:  # of a class with a codec of its own
        return None
    return None if None in kinds else {each for each in kinds if each is not None}


def _kind_of(annotation: Any) -> str | None:
    has_codec = isinstance(annotation, type) and is_registered(annotation) and annotation not in _EXAMPLES
    if has_codec or _reshapes(annotation):
        return None
    found = schema_of(annotation).json_schema().get("type")
    return found if isinstance(found, str) else None


def _missing_fields(given: Any, taken: Any) -> list[str]:
    """Return the fields that a class needs for certain, and of which another one has none."""
    if not (isinstance(taken, type) and describes_itself(taken)) or given.__subclasses__() or _reshapes(given):
        return []
    returned, required = (schema_of(each).json_schema() for each in (given, taken))
    if "properties" not in returned or returned.get("additionalProperties"):
        return []
    return sorted(set(required.get("required", ())) - set(returned["properties"]))


def _reshapes(annotation: Any) -> bool:
    """Tell whether a pydantic model may have other fields in JSON than it shows."""
    fields = getattr(annotation, "model_fields", None) or getattr(annotation, "__pydantic_fields__", None) or {}
    decorators: Any = getattr(annotation, "__pydantic_decorators__", None)
    return any(each.alias is not None or each.validation_alias is not None for each in fields.values()) or (
        decorators is not None
        and bool(decorators.model_validators or decorators.model_serializers or decorators.computed_fields)
    )


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)

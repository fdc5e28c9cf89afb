"""What a handler takes, by the annotation of its first parameter: records, or their values."""

import inspect
import typing
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from recordpublisher.publishers.records import Record


def argument_of(handler: Callable[..., Any]) -> Callable[[Any], Any] | None:
    """A function from a record, or a list of them, to what the handler takes; None: it takes records.

    A parameter of a type that is neither `Record` nor a list of them gets the deserialised value, or a list of values. One without an
    annotation, with `Any` or a name that cannot be found, gets records.
    """
    annotation = _first_annotation(handler)
    item = _item_of(annotation)
    is_record = item is None or typing.get_origin(item) is Record or item in (Any, object, Record)
    return None if is_record or isinstance(item, typing.TypeVar) else _values


_value = attrgetter("value")


def _values(records: Any) -> Any:
    return list(map(_value, records)) if isinstance(records, list) else records.value


def _first_annotation(handler: Callable[..., Any]) -> Any:
    function: Any = getattr(handler, "func", handler)  # of a partial function
    if not inspect.isroutine(function):
        function = getattr(function, "__call__", None)  # noqa: B004 - of an object
    try:
        names = list(inspect.signature(handler).parameters)
        hints = typing.get_type_hints(inspect.unwrap(function))
    except Exception:  # an annotation may be any expression
        return None
    return hints.get(names[0]) if names else None


def _item_of(annotation: Any) -> Any:
    """`Order` of `list[Order]`: with `batch_size` a handler gets a list."""
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    is_list = isinstance(origin, type) and issubclass(list, origin)
    if annotation is list:
        return None
    return arguments[0] if is_list and arguments else annotation

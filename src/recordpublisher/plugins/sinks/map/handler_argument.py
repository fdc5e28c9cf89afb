"""What a handler takes, by the annotation of its first parameter: records, or their values."""

import inspect
import types
import typing
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from recordpublisher.publishers.records import Record


def value_type_of(handler: Callable[..., Any]) -> Any:
    """The type of the values that a handler takes; None: it takes records.

    A parameter of a type that is neither `Record` nor a list of them gets the deserialised value, or a list of values. One without an
    annotation, with `Any` or a name that cannot be found, gets records.
    """
    annotation = _first_annotation(handler)
    item = _item_of(annotation)
    is_record = item is None or typing.get_origin(item) is Record or item in (Any, object, Record)
    return None if is_record or isinstance(item, typing.TypeVar) else item


def takes_records_in_a_list(handler: Callable[..., Any]) -> bool:
    """Whether its annotation is a bare `list`, or a list of records."""
    annotation = _first_annotation(handler)
    return annotation is list or (typing.get_origin(annotation) is list and value_type_of(handler) is None)


_value = attrgetter("value")


def values_of(records: Any) -> Any:
    """The value of a record, or those of a list of them."""
    return list(map(_value, records)) if isinstance(records, list) else records.value


def may_be(value_type: Any, taken: Any) -> bool:
    """Whether values of a type may be what a handler takes; also where one of the two is not a class, and so not compared."""
    made, wanted = _classes_of(value_type), _classes_of(taken)
    return not made or not wanted or any(issubclass(a, b) or issubclass(b, a) for a in made for b in wanted)


def _classes_of(given: Any) -> list[type]:
    """The classes of a type or of a union; none where they are not all known."""
    members = [given]
    if typing.get_origin(given) in (typing.Union, types.UnionType):
        members = list(typing.get_args(given))
    classes = [dict if typing.is_typeddict(each) else typing.get_origin(each) or each for each in map(_bare, members)]
    is_known = all(isinstance(each, type) and typing.Protocol not in each.__mro__ for each in classes)
    return classes if is_known else []


def _bare(given: Any) -> Any:
    return given.__origin__ if typing.get_origin(given) is typing.Annotated else given


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

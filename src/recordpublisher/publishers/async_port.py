"""AsyncPort, the base class of interfaces for plugins. It checks the methods and attributes of a plugin's class when the class is made."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

from .safe_text import repr_of
from .user_code import is_coroutine_function


class AsyncPort:
    """Base class of an interface that plugins implement (a port). It refuses a subclass whose methods or attributes do not fit the port.

    Without this check, a mistake would be noticed late or never. Two examples:

    - The port has `async def write`. A plain `def write` would fail at its first call, with a message about None.
    - The port has `def has_room`. An `async def has_room` would never run, because its coroutine counts as true.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Check the methods and attributes of a subclass. Raises: TypeError if one of them does not fit the port."""
        super().__init_subclass__(**options)
        for name, own in vars(cls).items():
            replaced = [(base, vars(base)[name]) for base in cls.__mro__[1:] if name in vars(base)]
            is_plain = isinstance(own, types.FunctionType) and not is_coroutine_function(inspect.unwrap(own))
            if is_plain and any(is_coroutine_function(each) for _, each in replaced):
                raise TypeError(f"{cls.__name__}.{name} must be async: write `async def {name}`, without `yield`")
            # A method that replaces a method of another class of the user is not checked.
            ports = next((each for base, each in replaced if _is_of_package(base)), None)
            if ports is None or name.startswith("_"):
                continue
            if wrong := _why_unfit(name, own, ports) or (
                "" if _is_of_package(cls) else _why_not_called(name, own, ports)
            ):
                raise TypeError(f"{cls.__name__}.{name} {wrong}")


def _is_of_package(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "recordpublisher"


def _why_unfit(name: str, own: Any, ports: Any) -> str:
    """Return why the attribute `own` of a subclass cannot replace the port's attribute `ports`, or "" if it can.

    It cannot if it is another kind of method, or a value of another type.
    """
    if isinstance(ports, (types.FunctionType, classmethod)):
        return _why_wrong_method(name, own, ports)
    if isinstance(own, (types.FunctionType, classmethod, staticmethod)) and not isinstance(ports, staticmethod):
        return f"must be a value, because it is not called: write `{name} = ...`, or `@property` above `def {name}`"
    if isinstance(ports, (bool, int, float)) and not hasattr(own, "__get__"):
        wanted: tuple[type, ...] = (bool,) if isinstance(ports, bool) else (int, float)
        if not isinstance(own, wanted) or isinstance(own, bool) is not isinstance(ports, bool):
            return f"is {repr_of(own, 60)}, and must be {'True or False' if wanted == (bool,) else 'a number'}"
    return ""


def _why_wrong_method(name: str, own: Any, ports: types.FunctionType | classmethod[Any, Any, Any]) -> str:
    function = _function_of(own)
    if isinstance(own, (property, functools.cached_property)):
        return "must be a method, because it is called: remove the decorator that makes it a property"
    if not callable(function) and not hasattr(own, "__get__"):
        return f"is {repr_of(own, 60)}, and must be a method: write `def {name}`"
    if isinstance(ports, classmethod) and isinstance(own, types.FunctionType):
        return f"must be a class method: write `@classmethod` above `def {name}`"
    if isinstance(function, types.FunctionType) and not is_coroutine_function(_function_of(ports)):
        plain = inspect.unwrap(function)
        if is_coroutine_function(plain) or inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain):
            return f"must be a plain method, because it is not awaited: write `def {name}`, without `async` and `yield`"
    return ""


def _function_of(attribute: Any) -> Any:
    """Return the function of a class method or a static method. Return any other attribute unchanged."""
    return attribute.__func__ if isinstance(attribute, (classmethod, staticmethod)) else attribute


def _why_not_called(name: str, own: Any, ports: Any) -> str:
    """Return why a method (`own`) cannot be called with the arguments of the port's method (`ports`), or "" if it can."""
    function, called = _function_of(own), _function_of(ports)
    if not isinstance(function, types.FunctionType) or not isinstance(called, types.FunctionType):
        return ""
    signature = inspect.signature(called)
    given = list(signature.parameters.values())[0 if not isinstance(own, staticmethod) else 1 :]
    ordered = [each for each in given if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    by_name = {each.name: None for each in given if each.kind is each.KEYWORD_ONLY}
    try:
        found = inspect.signature(function)
        found.bind(*ordered, **by_name)
    except (TypeError, ValueError):
        plain = signature.replace(
            parameters=[each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()],
            return_annotation=inspect.Signature.empty,
        )
        define = "async def" if is_coroutine_function(called) else "def"
        return f"does not have the parameters with which it is called: write `{define} {name}{plain}`"
    return ""

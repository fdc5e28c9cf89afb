"""Properties: a mapping of strings that returns typed, checked values. Property: one declaration (C1)."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from ..errors import ConfigurationError
from ..password_masking import MASK, mask_passwords

if TYPE_CHECKING:
    from .settings import Settings

T = TypeVar("T")

_DECLARED: dict[str, Property[Any]] = {}
_IGNORED: dict[str, str] = {}
_PREFIXES = ("flink", "aws")


@dataclass(frozen=True, slots=True)
class Property(Generic[T]):
    """One declared property: key, type, default, unit and description (C1).

    `parse` turns text into the value and raises ValueError; `valid` describes the valid values. A key that ends in `.` or `[`
    is a prefix (`flink.stream.efo.consumerarn.<stream>`). `aliases` are older spellings. `group` is its section on the reference page.
    `connector` is the default of Flink's connector where it differs from ours (the FLIP's numbers are ours). `argument` is the keyword
    argument, where it is not made from the key.
    """

    key: str
    parse: Callable[[str], T]
    default: T
    valid: str
    sentence: str
    unit: str = ""
    group: str = ""
    secret: bool = False
    aliases: tuple[str, ...] = ()
    type_name: str = ""
    connector: str = ""
    argument: str = ""

    @property
    def keyword(self) -> str:
        """The keyword argument in Python: the key without `flink.` or `aws.`, with `_` for each dot, unless it has another name."""
        key = re.sub(r"^(flink|aws)\.", "", self.key)
        return self.argument or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).replace(".", "_").lower()

    @property
    def is_prefix(self) -> bool:
        """Whether this stands for every key that begins with `key`."""
        return self.key.endswith((".", "["))

    @property
    def spelling(self) -> str:
        """The key as shown to people; a prefix has a placeholder."""
        ending = "i].exception" if self.key.endswith("[") else "<name>" if self.is_prefix else ""
        return self.key + ending


def declare(declared: Property[T]) -> Property[T]:
    """Register a property; plugins declare theirs with it, too."""
    for key in (declared.key, *declared.aliases):
        _DECLARED[key.lower()] = declared
    return declared


def declared_properties() -> list[Property[Any]]:
    """Every declared property once, in the order of declaration."""
    return list(dict.fromkeys(_DECLARED.values()))


class Properties(Mapping[str, str]):
    """An immutable mapping of property keys to text, with typed and checked values.

    Keys compare without case, since Spark lower-cases them (C2). Other values than text are converted to text (`True` to `true`).
    Keyword arguments are properties too, by a key without prefix: `Properties(region="eu-west-1", start="LATEST")`; see `Settings`.

    Raises: ConfigurationError for an unknown keyword argument, and for one that contradicts the mapping.
    """

    def __init__(self, mapping: Mapping[str, object] | None = None, **settings: Unpack[Settings]) -> None:
        merged: dict[str, object] = dict(mapping or {})
        if settings:
            from .keywords import properties_of

            merged |= properties_of(settings, Properties(mapping))
        given = {str(key): _as_text(value) for key, value in merged.items() if value is not None}
        self._values = {key.lower(): value for key, value in given.items()}
        spelling = {key.lower(): key for key in given}  # of two keys that differ in case only, the later one wins
        self._given = {spelling[key]: value for key, value in self._values.items()}

    def __getitem__(self, key: str) -> str:
        return self._values[key.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self._values

    def __repr__(self) -> str:
        shown = {key: MASK if is_secret(key) else mask_passwords(value) for key, value in self._given.items()}
        return f"Properties({shown})"

    def value(self, declared: Property[T]) -> T:
        """The typed value of a declared property, or its default.

        Raises: ConfigurationError with key, value and what is valid, or when two spellings of the property have different values.
        """
        given = self._spellings(declared)
        if not given:
            return declared.default
        values = [self._parsed(declared, key) for key in given]
        for key, value in zip(given, values, strict=True):
            if value != values[0]:
                reason = f"'{given[0]}' and '{key}' are two spellings of it and have different values"
                raise ConfigurationError(declared.key, reason=reason, valid="one of them")
        return values[0]

    def _parsed(self, declared: Property[T], key: str) -> T:
        text = self._values[key.lower()]
        try:
            return declared.parse(text.strip())
        except (ValueError, OverflowError) as error:
            shown = MASK if declared.secret else mask_passwords(text)
            # the cause may quote the value
            raise ConfigurationError(key, shown, declared.valid) from (error if shown == text else None)

    def is_set(self, declared: Property[Any]) -> bool:
        """Whether the property was given, by its key or an older spelling."""
        return bool(self._spellings(declared))

    def with_prefix(self, declared: Property[T]) -> dict[str, str]:
        """The given keys under a prefix property, without the prefix and in lower case, with their text."""
        prefix = declared.key.lower()
        return {key[len(prefix) :]: value for key, value in self._values.items() if key.startswith(prefix)}

    def merged(self, mapping: Mapping[str, object]) -> Properties:
        """These properties with `mapping` over them: over every spelling of its properties."""
        replaced = {spelling.lower() for key in mapping for spelling in _all_spellings(key)}
        kept = {key: value for key, value in self._given.items() if key.lower() not in replaced}
        return Properties({**kept, **mapping})

    def check(self, is_checked: Callable[[str], bool] = lambda key: True) -> None:
        """Parse every declared property that was given and warn of unknown keys with the nearest known one (C2).

        Keys of another name space (`my.own.key`) do not warn, and neither do those for which `is_checked` is false: the caller checks them.
        """
        for declared in declared_properties():
            if not declared.is_prefix:
                self.value(declared)
        for key in self._given:
            if is_checked(key):
                warn_if_unknown(key)

    @classmethod
    def from_file(cls, path: str | Path) -> Properties:
        """Read a Java properties file: `key=value`, `key: value`, `#` and `!` comments, `\\` continuations and escapes.

        Raises: ConfigurationError when the file cannot be read.
        """
        from .java_file import read_properties_file

        return cls(read_properties_file(Path(path)))

    def _spellings(self, declared: Property[Any]) -> list[str]:
        """Those of a property's spellings that were given."""
        return [key for key in (declared.key, *declared.aliases) if key.lower() in self._values]


def _all_spellings(key: str) -> tuple[str, ...]:
    declared = _DECLARED.get(key.lower())
    return (key,) if declared is None else (key, declared.key, *declared.aliases)


def is_secret(key: str) -> bool:
    """Whether a key's value must never be shown (C3): declared so, or named like a secret."""
    declared = _DECLARED.get(key.lower())
    if declared is not None:
        return declared.secret
    return any(word in key.lower() for word in ("secret", "pass", "pwd", "token", "accesskey", "apikey", "sslkey"))


def warn_if_unknown(key: str) -> None:
    """Warn of a key that was meant for us and has no effect, with the reason if it is Flink's, else with the nearest known key."""
    lower_key = key.lower()
    if _is_declared(lower_key) or not _is_meant_for_us(lower_key):
        return
    foreign = next((reason for stem, reason in _IGNORED.items() if lower_key.startswith(stem.lower())), None)
    message = (
        f"property '{key}' has no effect here: {foreign}"
        if foreign
        else f"unknown property '{key}' is ignored{_hint(lower_key)}"
    )
    warnings.warn(message, UnknownPropertyWarning, stacklevel=3)


def declare_ignored(reasons: Mapping[str, str]) -> None:
    """Register keys of Flink (or prefixes of them) that have no effect here, each with the reason."""
    _IGNORED.update(reasons)


def _is_declared(lower_key: str) -> bool:
    if lower_key in _DECLARED:
        return not _DECLARED[lower_key].is_prefix
    return any(declared.is_prefix and lower_key.startswith(key) for key, declared in _DECLARED.items())


def _is_meant_for_us(lower_key: str) -> bool:
    """Whether a key has our prefix, a prefix that is nearly ours, or none (`initpos`, `stream.initpos`)."""
    stem, dot, _ = lower_key.partition(".")
    return not dot or bool(difflib.get_close_matches(stem, _PREFIXES, n=1, cutoff=0.8)) or bool(_ending_in(lower_key))


def _ending_in(lower_key: str) -> list[str]:
    """The known keys that are the given key behind a prefix, shortest first."""
    return sorted((known for known in _DECLARED if known.endswith("." + lower_key)), key=len)


def _hint(lower_key: str) -> str:
    spelled = lower_key.replace("_", ".")  # as in AWS_REGION
    complete = (f"{prefix}.{spelled}" for prefix in _PREFIXES)
    nearest = _ending_in(spelled) or next(filter(None, map(_nearest, (spelled, *complete))), [])
    return f"; did you mean '{_DECLARED[nearest[0]].key}'?" if nearest else ""


def _nearest(lower_key: str) -> list[str]:
    return difflib.get_close_matches(lower_key, _DECLARED, n=1)


class UnknownPropertyWarning(UserWarning):
    """A property is not known and has no effect."""


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Properties: a mapping of strings that returns typed, checked values (C1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ..errors import ConfigurationError
from ..password_masking import MASK, mask_passwords
from .declaration import Property, declared_properties, find_property, is_secret
from .keywords import property_of_keyword
from .times import which_name, why_no_time
from .unknown_keys import refuse_if_misspelt

if TYPE_CHECKING:
    from .generated.settings import Settings

T = TypeVar("T")


class Properties(Mapping[str, str]):
    """An immutable mapping of property keys to text, with typed and checked values.

    Keys compare without case, because Spark lower-cases them (C2). Values other than text are converted to text (`True`
    to `true`). Keyword arguments are also properties, by a key without prefix. An example is
    `Properties(region="eu-west-1", start="LATEST")`; see `Settings`.

    A keyword argument takes precedence over the same property of the mapping.

    Raises: ConfigurationError if `mapping` is not a mapping, or a keyword argument is unknown or contradicts another
    one.
    """

    def __init__(self, mapping: Mapping[str, object] | None = None, **settings: Unpack[Settings]) -> None:
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigurationError(
                "properties",
                mapping,
                "a mapping of property keys to values; rp.Properties.from_file reads a file",
            )
        own: dict[str, object] = {}
        for keyword, value in settings.items():
            if value is not None:
                declared = property_of_keyword(keyword, value)
                _check_same(keyword, value, declared, Properties(own))
                own[declared.key] = value
        merged = {**_without(own, mapping or {}), **own}
        given = {str(key): _as_text(str(key), value) for key, value in merged.items() if value is not None}
        self._values = {key.lower(): value for key, value in given.items()}
        spelling = {key.lower(): key for key in given}  # if two keys differ in case only, the later one wins
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
        """Return the typed value of a declared property, or its default.

        Raises: ConfigurationError with key, value and valid values, if the value is invalid or two spellings of the
        property have different values.
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
            is_name = declared.type_name == "enum"
            reason = (why_no_time(shown) or which_name(shown, declared.valid)) if is_name else ""
            raise ConfigurationError(key, shown, declared.valid, reason=reason) from (error if shown == text else None)

    def as_given(self, declared: Property[str]) -> str:
        """Return the text of a declared property, for people, or its default."""
        given = self._spellings(declared)
        return self._values[given[0].lower()].strip() if given else declared.default

    def is_set(self, declared: Property[Any]) -> bool:
        """Return whether the property was given, by its key or an older spelling."""
        return bool(self._spellings(declared))

    def with_prefix(self, declared: Property[T]) -> dict[str, str]:
        """Return the given keys under a prefix property, without the prefix and in lower case, with their values."""
        prefix = declared.key.lower()
        return {key[len(prefix) :]: value for key, value in self._values.items() if key.startswith(prefix)}

    def merged(self, mapping: Mapping[str, object]) -> Properties:
        """Return these properties with the values of `mapping`, which take precedence over every spelling of its properties."""
        return Properties({**_without(mapping, self._given), **mapping})

    def check(self, is_checked: Callable[[str], bool] = lambda key: True) -> None:
        """Parse every declared property that was given, and refuse misspelt keys (C2).

        An unknown key that resembles no known one is logged. A key of another name space (`my.own.key`) is not, nor is a
        key for which `is_checked` is false, because the caller checks it.

        Raises: ConfigurationError if a value is invalid, or if a key is nearly that of a property.
        """
        for declared in declared_properties():
            if not declared.is_prefix:
                self.value(declared)
        for key in self._given:
            if is_checked(key):
                refuse_if_misspelt(key)

    @classmethod
    def from_file(cls, path: str | Path) -> Properties:
        """Read a Java properties file: `key=value`, `key: value`, `#` and `!` comments, `\\` continuations and escapes.

        Raises: ConfigurationError if the file cannot be read.
        """
        return cls(read_properties_file(Path(path)))

    def _spellings(self, declared: Property[Any]) -> list[str]:
        """Return the spellings of a property that were given."""
        return [key for key in (declared.key, *declared.aliases) if key.lower() in self._values]


def _without(replaced: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """Return `values` without any spelling of the properties in `replaced`."""
    spellings = {spelling.lower() for key in replaced for spelling in _all_spellings(key)}
    return {key: value for key, value in values.items() if str(key).lower() not in spellings}


def _all_spellings(key: str) -> tuple[str, ...]:
    declared = find_property(key)
    return (key,) if declared is None else (key, declared.key, *declared.aliases)


def _check_same(keyword: str, value: object, declared: Property[Any], others: Properties) -> None:
    """Refuse two keyword arguments that contradict each other.

    Raises: ConfigurationError if another keyword argument gives the same property another value.
    """
    own = Properties({declared.key: value})
    if not others.is_set(declared) or others.value(declared) == own.value(declared):
        return
    ours, theirs = (MASK if declared.secret else properties.value(declared) for properties in (own, others))
    reason = f"the keyword argument '{keyword}' is {ours!r}"
    raise ConfigurationError(declared.key, theirs, "one of the two, or the same value in both", reason=reason)


def _as_text(key: str, value: object) -> str:
    """Return `value` as text.

    Raises: ConfigurationError if it is a datetime without a zone, which Python would read as local time.
    """
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ConfigurationError(key, value, "a time with a zone, as of datetime.now(UTC)")
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)}ms"
    return str(value).lower() if isinstance(value, bool) else str(value)


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def read_properties_file(path: Path) -> dict[str, str]:
    """Return the pairs of a Java properties file in UTF-8; later pairs win. Raises: ConfigurationError if it cannot be read."""
    try:
        return parse_properties(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(
            "file", str(path), "a readable Java properties file in UTF-8", reason=f"{reason}"
        ) from error


def parse_properties(content: str) -> dict[str, str]:
    """Return the pairs in a text, by the rules of java.util.Properties. Raises: ValueError if an escape is invalid, as in Java."""
    return dict(_split_pair(line) for line in _logical_lines(content))


def _logical_lines(content: str) -> list[str]:
    """Return lines without comments and blanks, with continuations joined."""
    lines: list[str] = []
    pending: str | None = None
    for raw in _LINE_END.split(content):
        line = raw.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        if _ends_in_continuation(line):
            pending = (pending or "") + line[:-1]
            continue
        lines.append((pending or "") + line)
        pending = None
    return [*lines, pending] if pending else lines


def _ends_in_continuation(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_pair(line: str) -> tuple[str, str]:
    found = _PAIR.fullmatch(line)
    key, value = found.groups() if found else (line, "")
    return _unescape(key), _unescape(value)


def _unescape(escaped: str) -> str:
    """Resolve escapes. Java's text is UTF-16, so a character beyond the first plane is written as two escapes."""
    units = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", _unescaped, escaped, flags=re.DOTALL)
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


def _unescaped(match: re.Match[str]) -> str:
    code: str = match.group(1)
    if code == "u":
        raise ValueError("malformed \\uxxxx escape")
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

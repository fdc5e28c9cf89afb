"""Declares properties, and keeps those that this library and its plugins have declared."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypedDict, TypeVar, Unpack, overload

from ..errors import ConfigurationError
from ..safe_text import names_a_secret, note_secrecy, text_of
from .times_and_sizes import example_with_unit, parse_with_unit

NO_MAXIMUM = 2**62


_MAX_TAGS, _KEY_LENGTH, _VALUE_LENGTH = 50, 128, 256  # the service's limits for tags
_TAG_WORDS = (
    f"up to {_MAX_TAGS} tags such as team=blue,stage=test, each key once; "
    f"keys of 1 to {_KEY_LENGTH}, values of up to {_VALUE_LENGTH} characters"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Property(Generic[T]):
    """One declared property: key, type, default, unit and description. `text`, `integer` and the other functions declare one.

    An object that is made by hand is not declared: its key is unknown to a job, which may refuse it as a misspelt one.

    - `key`: a key that ends in `.` or `[` is a prefix (`flink.stream.efo.consumerarn.<stream>`).
    - `parse`: turns a text into the value. It raises ValueError if the text is not valid.
    - `valid`: describes the valid values.
    - `aliases`: older spellings of the key.
    - `group`: the property's section on the reference page.
    - `connector`: the default of Flink's connector if it differs from ours.
    - `argument`: a keyword argument that is shorter than the one made from the key.
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
    def keywords(self) -> tuple[str, ...]:
        """The names of the keyword arguments that set the property: `argument` if it is set, and a name that is made from the key.

        That name has no `flink.` or `aws.`, and `_` for each dot.
        """
        key = re.sub(r"^(flink|aws)\.", "", self.key)
        from_key = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).replace(".", "_").lower()
        return (self.argument, from_key) if self.argument else (from_key,)

    @property
    def is_prefix(self) -> bool:
        """Whether `key` is a prefix: the property then stands for every key that begins with it."""
        return self.key.endswith((".", "["))

    @property
    def spelling(self) -> str:
        """The key as shown to people. If the key is a prefix, a placeholder follows."""
        ending = "i].exception" if self.key.endswith("[") else "<name>" if self.is_prefix else ""
        return self.key + ending


class PropertyOptions(TypedDict, total=False):
    """Further arguments of the functions that declare a property.

    - `group`: the property's section on the reference page and in `recordpublisher properties`.
    - `secret`: whether the value must never be shown. Default: False. Errors, logs and the `repr` of `rp.Properties` then mask the value.
      The `repr` also masks each value whose key is not declared, such as that of a plugin that was not imported yet.
    - `aliases`: older spellings of the key. If a job has one of a plugin's property, a warning names the present key.
    - `connector`: the default of Flink's connector if it differs from ours.
    - `argument`: a keyword argument for `rp.Properties`, shorter than the one that is made from the key. Not for plugins.
    """

    group: str
    secret: bool
    aliases: tuple[str, ...]
    connector: str
    argument: str


class PropertyGroup:
    """A section of the reference page. Each method declares a property of the section, with the parser and the valid values of one type."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.properties: list[Property[Any]] = []

    @overload
    def text(
        self,
        key: str,
        sentence: str,
        default: str,
        *,
        valid: str = ...,
        check: Callable[[str], object] | None = None,
        **more: Unpack[PropertyOptions],
    ) -> Property[str]: ...
    @overload
    def text(
        self,
        key: str,
        sentence: str,
        default: None = None,
        *,
        valid: str = ...,
        check: Callable[[str], object] | None = None,
        **more: Unpack[PropertyOptions],
    ) -> Property[str | None]: ...
    def text(
        self,
        key: str,
        sentence: str,
        default: str | None = None,
        *,
        valid: str = "a text that is not empty",
        check: Callable[[str], object] | None = None,
        **more: Unpack[PropertyOptions],
    ) -> Property[Any]:
        """Declare a property whose value is a text that is not empty. Without a default, the value is None if the property is not set.

        - `valid`: describes the valid texts, for messages and `recordpublisher properties`.
        - `check`: checks a text, such as a URL or a list of names. It raises ValueError with the reason, or returns False, if the text is
          not valid. The job is then refused before anything runs.
        """
        # An Avro schema may be a text in JSON, such as "string" with its quotes, and a format of Java may begin and end with quoted text.
        keeps_quotes = "schema" in key or key.endswith(".format")
        parse: Callable[[str], str] = _parse_not_empty if keeps_quotes else _parse_without_quotes
        if check is not None:
            parse = _checking_parser(key, parse, check, more.get("secret", False))
        return self._declare("string", key, sentence, default, valid, parse, **more)

    def choice(
        self,
        key: str,
        sentence: str,
        default: str,
        options: tuple[str, ...],
        *,
        note: str = "",
        other: Callable[[str], object] | None = None,
        valid_other: str = "",
        **more: Unpack[PropertyOptions],
    ) -> Property[str]:
        """Declare a property whose value is one of the names `options`. These are in upper case, but the user may write them in any case.

        - `note`: a note about the last of these names, for messages and the reference page.
        - `other`: checks any text that is none of these names, and raises ValueError if it is not valid.
        - `valid_other`: describes the texts that `other` accepts.
        """

        if lower := [name for name in options if name != name.upper()]:
            reason = "a value becomes upper case, so it would never be this name"
            raise ConfigurationError(text_of(key), lower[0], lower[0].upper(), reason=reason)

        def parse(text: str) -> str:
            name = POSITION_ALIASES.get(text.lower(), text.upper())
            if name in options:
                return name
            if other is None:
                raise ValueError(text)
            other(text)
            return text

        valid = ", ".join(options) + (f" ({note})" if note else "") + (f", {valid_other}" if valid_other else "")
        return self._declare("enum", key, sentence, default, valid, parse, **more)

    def integer(
        self,
        key: str,
        sentence: str,
        default: int,
        minimum: int = 0,
        maximum: int = NO_MAXIMUM,
        also: tuple[int, ...] = (),
        unit: str = "",
        bare_from: int = 1,
        **more: Unpack[PropertyOptions],
    ) -> Property[int]:
        """Declare a property whose value is a whole number from `minimum` to `maximum`, or one of the values `also` (such as -1 for off).

        With the `unit` ms or s, a duration such as `10s` is also accepted, and with bytes a size such as `64mb`.

        - `bare_from`: smaller numbers are refused if they have no unit, because they were probably meant in seconds. 0 is never refused.
        """
        parse = _range_parser(minimum, maximum, also, unit, bare_from)
        valid = _describe_range("a whole number", minimum, maximum, also, unit)
        return self._declare("int", key, sentence, default, valid, parse, unit=unit, **more)

    def optional_integer(
        self,
        key: str,
        sentence: str,
        minimum: int = 0,
        maximum: int = NO_MAXIMUM,
        unit: str = "",
        bare_from: int = 1,
        **more: Unpack[PropertyOptions],
    ) -> Property[int | None]:
        """Declare a property whose value is a whole number from `minimum` to `maximum`, as `integer` does, but without a default.

        The value is None if the property is not set. `sentence` says what that means.
        """
        parse = _range_parser(minimum, maximum, (), unit, bare_from)
        valid = _describe_range("a whole number", minimum, maximum, (), unit)
        return self._declare("int", key, sentence, None, valid, parse, unit=unit, **more)

    def number(
        self, key: str, sentence: str, default: float, minimum: float = 0.0, **more: Unpack[PropertyOptions]
    ) -> Property[float]:
        """Declare a property whose value is a finite decimal number of at least `minimum`."""

        def parse(text: str) -> float:
            value = float(_plain_digits(text))
            if not math.isfinite(value) or value < minimum:
                raise ValueError(text)
            return value

        return self._declare("double", key, sentence, default, f"a number of at least {minimum:g}", parse, **more)

    def boolean(self, key: str, sentence: str, default: bool, **more: Unpack[PropertyOptions]) -> Property[bool]:
        """Declare a property whose value is a boolean, given as true or false in any case."""

        def parse(text: str) -> bool:
            if text.lower() not in ("true", "false"):
                raise ValueError(text)
            return text.lower() == "true"

        return self._declare("boolean", key, sentence, default, "true or false", parse, **more)

    def plugin_name(self, key: str, sentence: str, default: str, **more: Unpack[PropertyOptions]) -> Property[str]:
        """Declare a property whose value is a name that a plugin registers. The user may write it in any case; it becomes upper case."""

        def parse(text: str) -> str:
            return _parse_not_empty(text).upper()

        return self._declare("string", key, sentence, default, "a text that is not empty", parse, **more)

    def tags(self, key: str, sentence: str, **more: Unpack[PropertyOptions]) -> Property[Mapping[str, str] | None]:
        """Declare a property whose value is the tags of an AWS resource: `key=value`, separated by commas. AWS's limits are checked."""
        return self._declare("tags", key, sentence, None, _TAG_WORDS, _parse_tags, **more)

    def prefix(self, key: str, sentence: str, **more: Unpack[PropertyOptions]) -> Property[str | None]:
        """Declare a property that stands for every key that begins with `key`, which must end in `.` or `[`."""
        valid = "a text that is not empty"
        return self._declare("string per name", key, sentence, None, valid, _parse_not_empty, **more)

    def _declare(
        self,
        type_name: str,
        key: str,
        sentence: str,
        default: Any,
        valid: str,
        parse: Callable[[str], Any],
        **more: Any,
    ) -> Property[Any]:
        if default is not None and type(default) not in _DEFAULTS.get(type_name, (type(default),)):
            valid = f"a default of the type {_DEFAULTS[type_name][0].__name__}, or None"
            raise ConfigurationError(
                text_of(key), default, valid, reason="this default is used as it is, without being parsed"
            )
        if default is not None:
            try:
                given = parse(str(default).strip())
            except ValueError:
                given = None
            # For example, a name of a `choice` becomes upper case when it is parsed, and a default is not parsed.
            if given != default:
                raise ConfigurationError(
                    text_of(key), default, valid, reason="it is the default, and would be refused as a given value"
                )
        fields = {"group": self.name, "type_name": type_name, **more}
        declared = declare(Property(key, parse, default, valid, sentence, **fields))
        self.properties.append(declared)
        return declared


_DEFAULTS: dict[str, tuple[type, ...]] = {"int": (int,), "double": (float, int), "boolean": (bool,), "string": (str,)}
"""The Python types that the default of a property may have, by the property's type. Defaults are not parsed."""
_of_plugins = PropertyGroup("")


text, choice, integer, optional_integer = (
    _of_plugins.text,
    _of_plugins.choice,
    _of_plugins.integer,
    _of_plugins.optional_integer,
)


number, boolean, prefix = _of_plugins.number, _of_plugins.boolean, _of_plugins.prefix
"""The functions `text` to `prefix` declare a property of a plugin. Their argument `group` names the section of the reference page:
`text("my.key", "What it says.", group="My plugin")`.
"""


def is_of_plugin(declared: Property[Any]) -> bool:
    """Return whether a plugin has declared the property, with `text` or another function of this module."""
    return declared in _of_plugins.properties


def _parse_not_empty(text: str) -> str:
    if not text:
        raise ValueError("empty")
    return text


def _parse_without_quotes(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        raise ExplainedValueError("the quotes would be part of the value: remove them")
    return _parse_not_empty(text)


def _checking_parser(
    key: str, parse: Callable[[str], str], check: Callable[[str], object], secret: bool
) -> Callable[[str], str]:
    def parse_and_check(text: str) -> str:
        value = parse(text)
        try:
            refused = check(value) is False
        except ValueError as error:
            # The message may quote a secret.
            raise ValueError if secret else ExplainedValueError(str(error)) from error
        except Exception as error:
            error.add_note(f"raised by the `check` of the property '{key}'")
            raise
        if refused:
            raise ValueError(text)
        return value

    return parse_and_check


def _parse_tags(text: str) -> Mapping[str, str]:
    pairs = [
        tuple(part.strip() for part in pair.partition("="))
        for pair in _parse_not_empty(text).split(",")
        if pair.strip()
    ]
    tags = {key: value for key, _, value in pairs}
    is_valid = all(sign and 1 <= len(key) <= _KEY_LENGTH and len(value) <= _VALUE_LENGTH for key, sign, value in pairs)
    if not is_valid or len(tags) < len(pairs) or len(tags) > _MAX_TAGS:
        raise ValueError(text)
    return tags


class ExplainedValueError(ValueError):
    """A value is refused because the user probably meant something else. The message says why, and what to write instead."""


def _range_parser(minimum: int, maximum: int, also: tuple[int, ...], unit: str, bare_from: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        with_unit = parse_with_unit(text, unit)
        value = int(_plain_digits(text)) if with_unit is None else with_unit
        if value in also:
            return value
        if with_unit is None and 0 < value < bare_from:
            raise ExplainedValueError(f"a number without a unit is in {unit}; write '{value}s' or '{value}{unit}'")
        if not minimum <= value <= maximum:
            raise ValueError(text)
        return value

    return parse


def _plain_digits(text: str) -> str:
    """Check that `text` is a plain ASCII number, and return it. Python would also accept `1_000` and digits of other scripts.

    Raises: ValueError if it is not.
    """
    if not re.fullmatch(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?", text):
        raise ValueError(text)
    return text


def unit_after(count: float, unit: str) -> str:
    """Return the unit as it is written after `count`: `record` after 1, otherwise `records`. `ms` and `s` never change."""
    return re.sub(r"(?<=ch)es$|(?<=\w\w)s$", "", unit) if count == 1 else unit


def _describe_range(kind: str, minimum: int, maximum: int, also: tuple[int, ...], unit: str) -> str:
    words = f"{kind} of at least {minimum}" if maximum >= NO_MAXIMUM else f"{kind} from {minimum} to {maximum}"
    words = f"{words} {unit_after(minimum if maximum >= NO_MAXIMUM else maximum, unit)}".strip()
    others = [*map(str, also), example_with_unit(unit, minimum, maximum)]
    return words + "".join(f", or {other}" for other in others if other)


class PropertyValues(Protocol):
    """Typed values of properties. `Properties` implements this protocol."""

    def value(self, declared: Property[T]) -> T:
        """Return the typed value of a declared property, or its default.

        Raises: ConfigurationError with key, value and valid values, if the value is invalid.
        """

    def is_set(self, declared: Property[Any]) -> bool:
        """Return whether the property was given."""

    def merged(self, mapping: Mapping[str, object]) -> Self:
        """Return these properties together with those of `mapping`, which take precedence."""


DEAD_LETTER_PREFIX, SINK_PREFIX = "flink.deadletter.", "flink.sink."
"""The prefixes of the settings of the dead-letter sink, and of other sinks. The settings after the prefix are the same."""
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-]*\[?")
_declared: dict[str, Property[Any]] = {}
"""The declared properties, by their keys and aliases in lower case."""


def declare(declared: Property[T]) -> Property[T]:
    """Register a property of this library or of a plugin.

    Raises: ConfigurationError if the key has characters other than letters, digits, dots and hyphens, or if another property has it.
    """
    for key in (declared.key, *declared.aliases):
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            valid = "a key of letters, digits, dots and hyphens, such as line-log.file"
            raise ConfigurationError(text_of(key), valid=valid, statement="cannot be a key")
        known = _declared.get(key.lower())
        if known is not None and (known.type_name, known.sentence) != (declared.type_name, declared.sentence):
            statement = f"is declared already, with the description '{known.sentence}'"
            raise ConfigurationError(key, valid="a key of its own", statement=statement)
    for key in (declared.key, *declared.aliases):
        _declared[key.lower()] = declared
        # The messages of errors need this, and their module cannot import this one.
        note_secrecy(key, declared.secret, is_prefix=declared.is_prefix)
        if key.lower().startswith(SINK_PREFIX):
            in_dead_letters = DEAD_LETTER_PREFIX + key[len(SINK_PREFIX) :]
            note_secrecy(in_dead_letters, declared.secret, is_prefix=declared.is_prefix)
    return declared


def declared_properties() -> list[Property[Any]]:
    """Return every declared property once, in the order of declaration."""
    return list(dict.fromkeys(_declared.values()))


def declared_keys() -> list[str]:
    """Return the keys and aliases of all declared properties, in lower case."""
    return list(_declared)


def find_property(key: str) -> Property[Any] | None:
    """Return the property with this key or alias, in any case, or None. A prefix is found only by the prefix itself."""
    return _declared.get(key.lower())


def property_set_by(key: str) -> Property[Any] | None:
    """Return the property that a key sets, or None if none is declared.

    It has this key or alias, or is a prefix of the key. A key of the dead-letter sink sets the property of a sink.
    """
    lower = key.lower()
    if (declared := _declared.get(lower)) is not None:
        return None if declared.is_prefix else declared
    if lower.startswith(DEAD_LETTER_PREFIX):
        return property_set_by(lower.replace(DEAD_LETTER_PREFIX, SINK_PREFIX, 1))
    return next((each for each in declared_properties() if each.is_prefix and lower.startswith(each.key.lower())), None)


def is_secret(key: str) -> bool:
    """Return whether the value of a key must never be shown.

    A declared property says so itself. Of any other key, or one below a prefix, the name decides too, such as `password`.
    """
    declared = property_set_by(key)
    if declared is not None and not declared.is_prefix:
        return declared.secret
    return names_a_secret(key) or (declared is not None and declared.secret)


POSITION_ALIASES = {"earliest": "TRIM_HORIZON"}
"""Kafka's names for positions in a stream, in lower case, each with the name in Kinesis."""
_MEANT = dict.fromkeys(("oldest", "beginning", "start", "first", "smallest"), "earliest") | dict.fromkeys(
    ("newest", "end", "now", "last", "largest", "tip"), "LATEST"
)
"""Other words for positions in a stream, each with the valid name that a message suggests."""
_SIMILAR = 0.75


def did_you_mean(given: str, valid: str) -> str:
    """Return a question that suggests a valid name for `given`, or "" if none is similar.

    `valid`: the text that describes the valid values. It begins with the valid names, separated by commas.
    """
    names = {name.lower(): name for name in valid.partition(" (")[0].split(", ")}
    word = given.strip().lower().replace("-", "_")
    if POSITION_ALIASES["earliest"].lower() in names:
        names |= {name: name for name in POSITION_ALIASES} | _MEANT
    near = difflib.get_close_matches(word, names, n=1, cutoff=1.0 if word in names else _SIMILAR)
    return f"did you mean '{names[near[0]]}'?" if near else ""

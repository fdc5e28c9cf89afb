"""`Properties` holds the properties of a job, returns their typed values, and refuses misspelt keys."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ..errors import ConfigurationError
from ..safe_text import MASK, mask_passwords, text_of
from .declaration import (
    DEAD_LETTER_PREFIX,
    SINK_PREFIX,
    ExplainedValueError,
    Property,
    declared_keys,
    declared_properties,
    did_you_mean,
    find_property,
    is_of_plugin,
    is_secret,
    property_set_by,
)
from .fan_out_properties import FAN_OUT
from .job_properties import (
    ALARMS,
    BAD_RECORDS,
    DEAD_LETTER,
    DISCOVERY_AND_STATE,
    FORMATS,
    MEMORY,
    METRICS,
    TRACING,
    VALUES_AND_TIME,
)
from .polling_properties import POLLING
from .queue_properties import QUEUE
from .reading_properties import ACCESS, ARCHIVE_READING, PUBLISHER, RETRIES
from .retry_properties import JOB
from .sink_properties import FILES_AND_TABLES, KINESIS_SINK, SINKS
from .times_and_sizes import A_DURATION, seconds_of, why_no_time

if TYPE_CHECKING:
    from .keyword_types import Settings


T = TypeVar("T")


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)

GROUPS = (
    ACCESS,
    JOB,
    PUBLISHER,
    POLLING,
    FAN_OUT,
    QUEUE,
    ARCHIVE_READING,
    DISCOVERY_AND_STATE,
    VALUES_AND_TIME,
    FORMATS,
    BAD_RECORDS,
    MEMORY,
    RETRIES,
    SINKS,
    FILES_AND_TABLES,
    KINESIS_SINK,
    METRICS,
    TRACING,
    ALARMS,
)

_OF_SINKS = "flink.sink."
_OTHER_NAMES = {
    **{"region_name": "region", "bootstrap_servers": "region", "endpoint_url": "endpoint", "group_id": "job_name"},
    "aws_access_key_id": "credentials_provider_basic_accesskeyid",
    "aws_secret_access_key": "credentials_provider_basic_secretkey",
    "aws_session_token": "credentials_provider_basic_sessiontoken",
    **dict.fromkeys(("initial_position", "initial_position_in_stream", "auto_offset_reset"), "start"),
}
"""Keyword arguments of boto3, the KCL and Kafka's clients, each with ours for the same thing."""
MIN_SIMILARITY = 0.75
"""The least similarity (difflib, 0 to 1) of a name that is suggested. With 0.72, `region` would be suggested for `begin`."""

log = logging.getLogger("recordpublisher.properties")
_PREFIXES = ("flink", "aws")
_MISSPELT = 0.8
"""Above this similarity (difflib, 0 to 1) to a known key, a key counts as misspelt.

`flink.sink.path` and `flink.sink.jsonl.path` have 0.83. The key `team` of another program and the `stream` of `flink.spark.stream` have
0.8.
"""
_MOST_MISSING = 2
"""The most segments that a misspelt key may lack at its beginning: `initpos` lacks the two of `flink.stream`."""
_MOST_MISSED = 1_000
"""The most keys without a value for which `get` looks for a misspelling."""
_REASONS = {
    "flink.stream.efo.http-client.max-concurrency": "the connections of subscriptions have no limit",
    "flink.stream.efo.http-client.read-timeout": "a subscription without an event for 20 s is reopened",
    "flink.watermark.sync.queue.capacity": "queues are bounded by flink.shard.queue.records and flink.shard.queue.bytes",
    "aws.credentials.provider.custom.class": "it names a Java class",
    "aws.credentials.provider.role.provider": "the role is assumed with the SDK's own chain of credentials",
    "aws.clientconfig.": "it names properties of the Java SDK",
    "aws.http-client.": "it sets the Java SDK's HTTP client",
    "aws.trust.all.certificates": "certificates are always checked",
}
"""Keys of Flink that have no effect here, or prefixes of such keys, each with the reason."""


class Properties(Mapping[str, str]):
    """An immutable mapping of property keys to text, with typed and checked values.

    Keys compare without case, because Spark lower-cases them. Values other than text are converted to text (`True` to `true`).

    Keyword arguments are also properties, by a key without prefix: `Properties(region="eu-west-1", start="LATEST")`; see `Settings`. A
    keyword argument takes precedence over the same property of the mapping.

    A duration in a keyword argument is a text with a unit (`"10s"`), a timedelta, or a number of seconds below 1000. In the mapping, and if
    the keyword ends in `millis`, a number has the unit of the property.

    `repr` masks secrets, and the value of each key that nothing has declared, because it may be a secret of a plugin that was not imported
    yet.

    Raises: ConfigurationError if `mapping` is not a mapping, if a keyword argument is unknown, or if two keyword arguments contradict each
    other.
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
                declared = property_of_keyword(keyword)
                own_value = _with_unit(keyword, declared, value)
                _check_same(keyword, own_value, declared, Properties(own))
                own[declared.key] = own_value
        merged = {**_without(own, mapping or {}), **own}
        given = {str(key): _as_text(str(key), value) for key, value in merged.items() if value is not None}
        self._values = {key.lower(): value for key, value in given.items()}
        spelling = {key.lower(): key for key in given}  # if two keys differ in case only, the later one wins
        self._given = {spelling[key]: value for key, value in self._values.items()}
        self._missed: set[str] = set()
        """Keys without a value for which `get` was called. It looks for a misspelling once."""

    def __getitem__(self, key: str) -> str:
        return self._values[key.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.lower() in self._values

    @overload
    def get(self, key: str, /, default: None = None) -> str | None: ...
    @overload
    def get(self, key: str, /, default: T) -> str | T: ...
    def get(self, key: str, /, default: object = None) -> object:
        """Return the text that was given for the property `key`, or `default` if none was given.

        A plugin should declare its properties and read them with `value` instead, because only the spelling of declared keys is checked. If
        `key` was not given, but an undeclared key with a similar spelling was, a warning is logged.
        """
        if key in self:
            return self[key]
        given: object = key
        if isinstance(given, Property):
            raise TypeError(
                f"read the declared property '{given.key}' with `properties.value`: `get` takes its key, a text"
            )
        if not isinstance(key, str) or key in self._missed or len(self._missed) == _MOST_MISSED:
            return default
        self._missed.add(key)
        unknown = [each for each in self._values if not _is_declared(each)]
        for near in difflib.get_close_matches(key.lower(), unknown, n=1, cutoff=_MISSPELT):
            log.warning("property '%s' is not set, and '%s' is unknown: is it a misspelling of '%s'?", key, near, key)
        return default

    def __repr__(self) -> str:
        is_shown = {key: property_set_by(key) is not None and not is_secret(key) for key in self._given}
        shown = {key: mask_passwords(value) if is_shown[key] else MASK for key, value in self._given.items()}
        return f"Properties({shown})"

    def value(self, declared: Property[T]) -> T:
        """Return the typed value of a declared property, or its default.

        Raises: ConfigurationError if the value is invalid, with key, value and valid values; or if the property is given twice, by two of
        its keys, with different values.
        """
        given = self._spellings(declared)
        if not given:
            return declared.default
        values = [self._parsed(declared, key) for key in given]
        for key, value in zip(given, values, strict=True):
            if value != values[0]:
                reason = f"both are spellings of {declared.key}, and their values differ"
                raise ConfigurationError.conflict(given[0], key, reason=reason)
        return values[0]

    def _parsed(self, declared: Property[T], key: str) -> T:
        text = self._values[key.lower()]
        try:
            return declared.parse(text.strip())
        except (ValueError, OverflowError) as error:
            shown = MASK if declared.secret else mask_passwords(text)
            # If the value was masked, the cause is dropped, because its message may quote the value.
            is_name = declared.type_name == "enum"
            reason = (why_no_time(shown) or did_you_mean(shown, declared.valid)) if is_name else ""
            reason = str(error) if isinstance(error, ExplainedValueError) else reason
            raise ConfigurationError(key, shown, declared.valid, reason=reason) from (error if shown == text else None)

    def as_given(self, declared: Property[str]) -> str:
        """Return the text that was given for a declared property, or its default. Use it for messages."""
        given = self._spellings(declared)
        return self._values[given[0].lower()].strip() if given else declared.default

    def is_set(self, declared: Property[Any]) -> bool:
        """Return whether the property was given, by its key or one of its aliases."""
        return bool(self._spellings(declared))

    def with_prefix(self, declared: Property[T]) -> dict[str, str]:
        """Return the given keys that begin with a prefix property, with their values. The keys have no prefix, and are in lower case."""
        prefix = declared.key.lower()
        return {key[len(prefix) :]: value for key, value in self._values.items() if key.startswith(prefix)}

    def merged(self, mapping: Mapping[str, object]) -> Properties:
        """Return these properties together with those of `mapping`, which take precedence. That is so even for two aliases of a key."""
        return Properties({**_without(mapping, self._given), **mapping})

    def check(self, is_checked: Callable[[str], bool] = lambda key: True, *, all_imported: bool = True) -> None:
        """Parse every declared property that was given, and refuse misspelt keys.

        An unknown key that resembles no known key is only logged. It is not even logged if it has a prefix of another program
        (`my.own.key`).

        - `is_checked`: returns whether to check a key here. Keys that the caller checks itself are left out.
        - `all_imported`: whether all installed plugins were imported. If not, messages about unknown keys say so.

        Raises: ConfigurationError if a value is invalid, or if a key looks like a misspelt property.
        """
        for declared in declared_properties():
            if not declared.is_prefix:
                self.value(declared)
        for key in self._given:
            if is_checked(key):
                refuse_if_misspelt(key, all_imported)
                _warn_if_renamed(key)

    @classmethod
    def from_file(cls, path: str | Path) -> Properties:
        """Read a Java properties file: `key=value`, `key: value`, `#` and `!` comments, `\\` continuations and escapes.

        Raises: ConfigurationError if the file cannot be read.
        """
        return cls(read_properties_file(Path(path)))

    def _spellings(self, declared: Property[Any]) -> list[str]:
        return [key for key in (declared.key, *declared.aliases) if key.lower() in self._values]


def _without(replaced: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """Return `values` without the properties in `replaced`, whichever of their aliases is used."""
    spellings = {spelling.lower() for key in replaced for spelling in _all_spellings(key)}
    return {key: value for key, value in values.items() if str(key).lower() not in spellings}


def _all_spellings(key: str) -> tuple[str, ...]:
    declared = find_property(key)
    return (key,) if declared is None else (key, declared.key, *declared.aliases)


def _with_unit(keyword: str, declared: Property[Any], value: object) -> object:
    """Return the value of a keyword argument. A duration that is a number becomes a text in seconds, such as `5s`.

    Raises: ConfigurationError if a duration is a number of 1000 or more, which was probably meant in milliseconds; or if it is a text
    without a unit.
    """
    is_duration = declared.unit in ("ms", "s") and not keyword.endswith("millis")
    if not is_duration or value in (0, "0", -1, "-1"):  # 0 needs no unit, and -1 means never
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = seconds_of(keyword, value)
        return f"{seconds}s" if isfinite(seconds) else value
    if isinstance(value, str) and value.strip().isdecimal():
        raise ConfigurationError(keyword, value, A_DURATION, reason="a text needs a unit")
    return value


def _check_same(keyword: str, value: object, declared: Property[Any], others: Properties) -> None:
    """Check that no other keyword argument (`others`) sets the property `declared` to another value.

    Raises: ConfigurationError if one does.
    """
    own = Properties({declared.key: value})
    if not others.is_set(declared) or others.value(declared) == own.value(declared):
        return
    ours, theirs = (MASK if declared.secret else properties.value(declared) for properties in (own, others))
    reason = "both set the same property"
    raise ConfigurationError.conflict(declared.key, f"{keyword}={ours}", value=theirs, reason=reason)


def _as_text(key: str, value: object) -> str:
    """Return the value of a property as text.

    Raises: ConfigurationError if it is a datetime without a zone. Python would read it as local time.
    """
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ConfigurationError(key, value, "a time with a zone, such as datetime.now(UTC)")
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)}ms"
    return str(value).lower() if isinstance(value, bool) else text_of(value)


def read_properties_file(path: Path) -> dict[str, str]:
    """Return the keys and values in a Java properties file in UTF-8. The last value of a key counts.

    Raises: ConfigurationError if the file cannot be read.
    """
    try:
        return parse_properties(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        meant = _nearest_file(path) if isinstance(error, FileNotFoundError) else ""
        raise ConfigurationError(
            "file", str(path), "a readable Java properties file in UTF-8", reason=f"{reason}{meant}"
        ) from error


def _nearest_file(path: Path) -> str:
    """Return a question that suggests a file with a similar name in the same folder, or "" if there is none.

    `path`: the path of a file that does not exist.
    """
    with suppress(OSError):
        names = [each.name for each in path.parent.iterdir() if each.is_file()]
        if near := difflib.get_close_matches(path.name, names, n=1, cutoff=0.8):
            return f"; did you mean '{path.with_name(near[0])}'?"
    return ""


def parse_properties(content: str) -> dict[str, str]:
    """Return the keys and values in a text, by the rules of java.util.Properties. Raises: ValueError if an escape is invalid."""
    return dict(_split_pair(line) for line in _logical_lines(content))


def _logical_lines(content: str) -> list[str]:
    """Return the lines of a properties file, without comments and blank lines. Lines that continue one another are joined."""
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
    """Return the text with its escapes resolved. Two escapes that Java writes for one character above U+FFFF become this character."""
    units = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", _unescaped, escaped, flags=re.DOTALL)
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


def _unescaped(match: re.Match[str]) -> str:
    code: str = match.group(1)
    if code == "u":
        raise ValueError("malformed \\uxxxx escape")
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)


def property_of_keyword(keyword: str) -> Property[Any]:
    """Return the property that a keyword argument sets.

    Raises: ConfigurationError if there is none. The message suggests the nearest keyword.
    """
    known = properties_by_keyword()
    if keyword not in known:
        hint = "".join(f"; did you mean '{nearest}'?" for nearest in _nearest_keywords(keyword, known)[:1])
        valid = "a key of `recordpublisher properties` without flink. or aws., with _ for each dot; a plugin's keys go into a mapping"
        of_plugin = [each.key for each in declared_properties() if is_of_plugin(each) and _names(keyword, each)]
        if of_plugin:
            hint = f": it is a plugin's property, and given as {{'{of_plugin[0]}': ...}} in `properties`, a mapping"
        # The value is not shown, because it may be a secret of a plugin.
        reason = f"there is no such keyword argument{hint}"
        raise ConfigurationError(keyword, valid=valid, reason=reason, statement="is not accepted")
    return known[keyword]


def _names(keyword: str, declared: Property[Any]) -> bool:
    return keyword in (declared.keywords[-1], re.sub("[-.]", "_", declared.key))


@cache
def properties_by_keyword() -> dict[str, Property[Any]]:
    """Return the declared properties by their keyword arguments. A prefix has no keyword argument, because it stands for many keys."""
    of_the_table = [declared for group in GROUPS for declared in group.properties if not declared.is_prefix]
    of_dead_letters = [_for_dead_letters(each) for each in of_the_table if each.key.startswith(_OF_SINKS)]
    return {keyword: declared for declared in [*of_the_table, *of_dead_letters] for keyword in declared.keywords}


def _for_dead_letters(declared: Property[Any]) -> Property[Any]:
    key = DEAD_LETTER.key + declared.key.removeprefix(_OF_SINKS)
    return replace(declared, key=key, sentence=f"`{declared.key}` of the dead-letter sink.", aliases=(), argument="")


def _nearest_keywords(keyword: str, known: Mapping[str, Property[Any]]) -> list[str]:
    """Return the `known` keyword arguments that are nearest to the unknown `keyword`.

    1. If `keyword` is one of another library, return ours for the same thing.
    2. Else return the ones whose key is `keyword` (`aws_region`) or ends in it (`initpos`, `access_key_id`). Keys of sinks are left out.
    3. Else return one with a similar spelling.
    """
    if keyword in _OTHER_NAMES:
        return [_OTHER_NAMES[keyword]]
    ending = "." + keyword.replace("_", ".")
    of_sinks = (_OF_SINKS, DEAD_LETTER.key)
    keys = {name: declared.key for name, declared in known.items() if not declared.key.startswith(of_sinks)}
    last = ending.replace(".", "")
    with_ending = [name for name, key in keys.items() if f".{key}".endswith(ending) or key.rpartition(".")[2] == last]
    return with_ending or difflib.get_close_matches(keyword, known, n=1, cutoff=MIN_SIMILARITY)


def _warn_if_renamed(key: str) -> None:
    """Log a warning if a plugin has another name for this property now. The aliases of this library are Flink's spellings, which stay."""
    declared = property_set_by(key)
    if declared is None or declared.is_prefix or not is_of_plugin(declared):
        return
    is_of_letters = key.lower().startswith(DEAD_LETTER_PREFIX)
    present = declared.key.replace(SINK_PREFIX, DEAD_LETTER_PREFIX, 1) if is_of_letters else declared.key
    if key.lower() != present.lower():
        words = "property '%s' is an older name of '%s': use the new one, because the old one may be removed"
        log.warning(words, key, present)


class UnknownPropertyWarning(UserWarning):
    """A property is not known and has no effect."""


def refuse_if_misspelt(key: str, all_imported: bool = True) -> None:
    """Log a warning if a key was meant for this library and has no effect. For a key of Flink, the warning says why.

    - `all_imported`: whether all installed plugins were imported.

    Raises: ConfigurationError if the key is misspelt. The message suggests the nearest key.
    """
    if is_unknown(key) and why_flink_key_has_no_effect(key) is None and _is_misspelt(key):
        raise ConfigurationError(key, reason=f"there is no such property{nearest_hint(key, all_imported)}")
    if told := why_without_effect(key, all_imported):
        log.warning("%s", told)


def why_without_effect(key: str, all_imported: bool = True) -> str:
    """Return the text of the warning for a key that was meant for this library and has no effect. Return "" for any other key.

    - `all_imported`: whether all installed plugins were imported.
    """
    if not is_unknown(key):
        return ""
    reason = why_flink_key_has_no_effect(key)
    if reason:
        return f"property '{key}' has no effect here: {reason}"
    why = "nothing that is installed declares it" if all_imported else f"a{_OF_ANOTHER_PLUGIN}"
    return f"unknown property '{key}': {why}"


_OF_ANOTHER_PLUGIN = (
    " plugin that was not imported may declare it ('recordpublisher plugins' lists what was not imported)"
)


def is_unknown(key: str) -> bool:
    """Return whether a key was probably meant for this library, but is not one of its properties."""
    return not _is_declared(key.lower()) and _is_meant_for_us(key.lower())


def why_flink_key_has_no_effect(key: str) -> str | None:
    """Return why a key of Flink has no effect here. Return None for any other key."""
    return next((reason for start, reason in _REASONS.items() if key.lower().startswith(start)), None)


def hint_of_misspelt(key: str, given: Iterable[str]) -> str:
    """Return a hint that one of the `given` keys is probably a misspelt `key`. Return "" if none is."""
    unknown = [each for each in given if not _is_declared(each.lower())]
    near = difflib.get_close_matches(key, unknown, n=1, cutoff=0.8)
    return f"'{near[0]}' is set, which is not a property" if near else ""


def knows_any(given: Iterable[str]) -> bool:
    """Return whether one of the `given` keys is a declared property, or begins with `flink.` or `aws.`."""
    return any(_is_declared(key.lower()) or key.lower().startswith(("flink.", "aws.")) for key in given)


def _is_declared(lower_key: str) -> bool:
    return property_set_by(lower_key) is not None


def _is_meant_for_us(lower_key: str) -> bool:
    """Return whether a key was probably meant for this library. One of these must be true:

    - The key has no dot.
    - Its first segment is that of a declared key, or is similar to `flink` or `aws`.
    - A declared key ends in it, as in `stream.initpos`.
    """
    stem, dot, _ = lower_key.replace("_", "-").partition(".")
    if not dot or stem in {known.partition(".")[0] for known in declared_keys()}:
        return True
    return bool(difflib.get_close_matches(stem, _PREFIXES, n=1, cutoff=0.8)) or bool(_ending_in(lower_key))


def _ending_in(lower_key: str) -> list[str]:
    """Return the known keys that end in a dot and `lower_key`, shortest first."""
    return sorted((known for known in declared_keys() if known.endswith("." + lower_key)), key=len)


def nearest_hint(key: str, all_imported: bool = True) -> str:
    """Return a question for the end of a message that suggests the nearest known key, or "" if no known key is near.

    - `all_imported`: whether all installed plugins were imported. If not, another sentence says so.
    """
    nearest = _nearest_known(key.lower())
    hint = f"; did you mean '{nearest}'?" if nearest else ""
    return hint if all_imported else f"{hint or '.'} A{_OF_ANOTHER_PLUGIN}"


def _is_misspelt(key: str) -> bool:
    """Return whether an unknown key is so similar to a known one that it must be misspelt. Other keys may belong to other programs."""
    nearest, spelled = _nearest_known(key.lower()).lower(), key.lower().replace("_", ".")
    if nearest.endswith(f".{spelled}"):
        # `initpos` is meant for flink.stream.initpos; `version` is not meant for aws.http.protocol.version.
        return nearest.count(".") - spelled.count(".") <= _MOST_MISSING
    if _nearest_of_plugin(spelled):
        return True  # No other program has keys below the name of a plugin or part, such as flink.sink.sql.
    # A key without our prefix is compared with keys without it. Otherwise `team` would be as near to flink.streams as a misspelt key.
    same_length = ".".join(nearest.split(".")[-1 - spelled.count(".") :])
    return any(difflib.SequenceMatcher(None, spelled, known).ratio() > _MISSPELT for known in (nearest, same_length))


def _nearest_known(lower_key: str) -> str:
    if lower_key.startswith(DEAD_LETTER_PREFIX):
        of_sink = _nearest_known(lower_key.replace(DEAD_LETTER_PREFIX, SINK_PREFIX, 1))
        return of_sink.replace(SINK_PREFIX, DEAD_LETTER_PREFIX, 1) if of_sink.startswith(SINK_PREFIX) else of_sink
    with_hyphens = find_property(lower_key.replace("_", "-"))
    if with_hyphens is not None:
        return with_hyphens.key
    spelled = lower_key.replace("_", ".")  # environment variables such as AWS_REGION are spelt so
    complete = (f"{prefix}.{spelled}" for prefix in _PREFIXES)
    nearest = (
        _nearest_of_plugin(spelled)
        or _ending_in(spelled)
        or next(filter(None, map(_nearest, (spelled, *complete))), [])
    )
    declared = find_property(nearest[0]) if nearest else None
    return declared.key if declared else ""


def _nearest_of_plugin(lower_key: str) -> list[str]:
    """Return the known key that is nearest to a key of a sink or other plugin, such as `flink.sink.sql.tabel` or `sql.tabel`.

    The list is empty if this plugin has no similar key.
    """
    *parents, plugin, _ = ["", *lower_key.split(".")]
    starts = (f"{'.'.join([*parents[1:], plugin])}.", f"{plugin}.")
    known = [key for key in declared_keys() if key.startswith(starts)] if len(parents) > 2 else []
    by_name = {key.rpartition(".")[2]: key for key in known}
    return [by_name[name] for name in difflib.get_close_matches(lower_key.rpartition(".")[2], by_name, n=1, cutoff=0.4)]


def _nearest(lower_key: str) -> list[str]:
    return difflib.get_close_matches(lower_key, declared_keys(), n=1)

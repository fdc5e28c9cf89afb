"""Translates options in the spelling of another connector to ours, with the meaning that they have in that connector (C1)."""

import json
import re
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import refuse_future
from recordpublisher.publishers.password_masking import MASK
from recordpublisher.publishers.properties.declaration import Property, declared_properties, parse_with_unit
from recordpublisher.publishers.properties.groups.reading import ENDPOINT, REGION, uses_fan_out
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.times import MAX_MS, epoch_ms, iso_time, why_no_time

from ..start_by_shard import AT_TIME, VALID_START, option_time_ms
from .option_table import EPOCH_MS, PEERS, START, START_AT, PeerOption

SECONDS_BELOW = 10**11
"""A smaller number is in seconds. As milliseconds it would be before 1974, when Kinesis did not exist."""
_BY_KEY = {option.key.lower(): option for options in PEERS.values() for option in options}
"""The options by lower-case key. If two connectors have the same key, it means the same in both."""
_AWS_ENDPOINT = re.compile(r"https?://kinesis(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/?")


def own_options(options: Mapping[str, str], has_default: Collection[Property[Any]]) -> Properties:
    """Return the options with our keys.

    - `has_default`: properties whose default matters to the job. If the other connector has a different default, a warning is given.

    Raises: ConfigurationError if an option has no equivalent here, if a value is not valid in the other connector, or if an option has two
    values.
    """
    given = _with_prefixes(Properties(options))
    own = given
    spelled: dict[str, str] = {}  # by our key: the spelling that gave its value
    for key in given:
        option = _BY_KEY.get("kafka.*" if key.lower().startswith("kafka.") else key.lower())
        if option is None or key.lower() in _own_spellings(option):
            continue
        if option.refused:
            raise ConfigurationError(key if option.key.endswith("*") else option.key, reason=option.refused)
        for ours, value in _translated(option, given[key].strip(), given).items():
            declared = _declared(ours)
            _check_same(given, option.key, declared, value)
            if ours in spelled and declared.parse(own[ours]) != declared.parse(value):
                raise _two_values(declared, option.key, given[key], spelled[ours], own[ours])
            spelled[ours] = option.key
            own = own.merged({ours: value})
        own = Properties({name: text for name, text in own.items() if name.lower() != key.lower()})
    own = _with_implied(own, [_BY_KEY[key.lower()] for key in given if key.lower() in _BY_KEY])
    _warn_of_defaults(Properties(options), own, has_default)
    return own


def _with_prefixes(given: Properties) -> Properties:
    """Return the options, where a prefix is joined to the value of the option that it precedes.

    Raises: ConfigurationError if that option is missing.
    """
    for option in (_BY_KEY[key.lower()] for key in given if key.lower() in _BY_KEY):
        if not option.before:
            continue
        if option.before not in given:
            reason = f"it comes before the value of '{option.before}', which is not set"
            raise ConfigurationError(
                option.key, given[option.key], f"'{option.before}', or '{option.ours}' alone", reason=reason
            )
        joined = given[option.key].strip() + given[option.before].strip()
        given = given.merged({option.key: None, option.before: joined})
    return given


def _translated(option: PeerOption, value: str, given: Properties) -> dict[str, str]:
    """Return our properties for a value of theirs. Raises: ConfigurationError if the value is invalid."""
    if option.unit == EPOCH_MS:
        value = _seconds(option.key, value)
    if value.startswith("{") and "at_timestamp" in value:
        value = _time_of_databricks(option.key, value)
    if option.ours == START_AT and parse_with_unit(value, "ms") is not None:
        return {option.ours: value}
    if option.ours == START_AT and value.upper().startswith((AT_TIME, *"0123456789")):
        at = option_time_ms(option.key, value, given, VALID_START)
        refuse_future(option.key, at, SystemClock().now_ms())
        return {option.ours: iso_time(at)}
    if option.values:
        ours = option.values.get(value.lower())
        if ours is None:
            valid = VALID_START if option.values is START else ", ".join(option.values)
            raise ConfigurationError(option.key, value, valid, reason=option.reason)
        return {option.ours: ours}
    value = f"{value}{option.unit}" if value.isdecimal() else value
    if option.ours == ENDPOINT.key and "://" not in value:
        value = f"https://{value}"  # The Java SDK also accepts a host without scheme.
    declared = _declared(option.ours)
    try:
        Properties({declared.key: value}).value(declared)
    except ConfigurationError as error:
        raise ConfigurationError(option.key, error.value, error.valid) from None
    return {option.ours: value}


def _seconds(key: str, given: str) -> str:
    """Return epoch milliseconds as seconds.

    Raises: ConfigurationError if they are not a number, or if they are probably seconds already.
    """
    if not given.isdecimal() or float(given) > MAX_MS:
        raise ConfigurationError(key, given, EPOCH_MS, reason=why_no_time(given))
    if 0 < int(given) < SECONDS_BELOW:
        reason = f"it is {iso_time(int(given))}; these may be seconds: write {int(given) * 1000}"
        raise ConfigurationError(key, given, EPOCH_MS, reason=reason)
    return f"{int(given) / 1000:.3f}"


def _time_of_databricks(key: str, given: str) -> str:
    """Return `AT_TIMESTAMP <time>` for `{"at_timestamp": ...}`. Raises: ConfigurationError if the time has another format than ISO-8601."""
    try:
        at = str(json.loads(given)["at_timestamp"])
        epoch_ms(at)
    except (ValueError, TypeError, LookupError, OverflowError):
        line = f".option('{key}', 'AT_TIMESTAMP 2026-11-22T06:00:00Z')"
        reason = "a time in a format of its own is not read"
        raise ConfigurationError(key, given, f"{line}, with your time in ISO-8601", reason=reason) from None
    return AT_TIME + at


def _check_same(given: Properties, key: str, declared: Property[Any], value: str) -> None:
    """Check that our own spelling, if given too, has the same value. Raises: ConfigurationError if it has another value."""
    own = next(
        (name for name in (declared.key, *declared.aliases) if name in given and name.lower() != key.lower()), None
    )
    if own is not None and given.value(declared) != declared.parse(value):
        raise _two_values(declared, key, given.get(key, value), own, given[own])


def _two_values(declared: Property[Any], key: str, value: str, other: str, others: str) -> ConfigurationError:
    """Return the error for two spellings of a property with different values."""
    if declared.secret:
        value = others = MASK
    return ConfigurationError.conflict(key, f"{other}={others}", value=value, reason="both set the same property")


def _with_implied(own: Properties, options: Collection[PeerOption]) -> Properties:
    implied = {key: value for option in options for key, value in option.also.items() if key not in own}
    endpoint = own.get(ENDPOINT.key)
    region = _AWS_ENDPOINT.fullmatch(endpoint) if options and endpoint else None
    if region and REGION.key not in own:
        implied[REGION.key] = region[1]
    return own.merged(implied)


def _warn_of_defaults(given: Properties, own: Properties, has_default: Collection[Property[Any]]) -> None:
    """Warn of each default that differs from the default of the connector whose options were given."""
    keys = {key.lower() for key in given}
    for name, options in PEERS.items():
        others = {each.key.lower() for peer, them in PEERS.items() if peer != name for each in them}
        if not keys & ({each.key.lower() for each in options} - others):
            continue
        theirs_only = keys & {each.key.lower() for each in options if each.key.lower() not in _own_spellings(each)}
        for option in filter(lambda each: each.default, options):
            declared = _declared(option.ours)
            if option.before:
                if theirs_only <= {"consumermode", "consumername"}:  # Users of our options may guess these names.
                    continue
                here = _without_prefix(given, own, option)
            else:
                is_ours = declared in has_default and not own.is_set(declared)
                here = f"here '{declared.key}' is {declared.default}" if is_ours else ""
            if here:
                theirs = f"'{option.key}' is {option.default} by default in {name}"
                warnings.warn(f"{theirs}; {here}: set it", UserWarning, stacklevel=4)


def _without_prefix(given: Properties, own: Properties, option: PeerOption) -> str:
    """Return what the value is here, if their default would be a prefix of it; empty if that does not matter."""
    if option.before not in given or option.key in given or not uses_fan_out(own):
        return ""
    name = own[option.ours]
    return f"here there is none, and '{option.ours}' is {name} and not {option.default}{name}"


def _own_spellings(option: PeerOption) -> set[str]:
    return {name.lower() for name in _declared(option.ours).aliases} if option.ours else set()


def _declared(key: str) -> Property[Any]:
    return next(each for each in declared_properties() if each.key == key)

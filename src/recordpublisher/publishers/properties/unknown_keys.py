"""Refuses misspelt keys, and warns of others that have no effect (C2)."""

import difflib
import logging
from collections.abc import Iterable

from ..errors import ConfigurationError
from .declaration import declared_keys, declared_properties, find_property

log = logging.getLogger("recordpublisher.properties")
_PREFIXES = ("flink", "aws")
_REASONS = {
    "flink.stream.efo.http-client.max-concurrency": "the connections of subscriptions have no limit (F1)",
    "flink.stream.efo.http-client.read-timeout": "see flink.shard.subscribetoshard.inactivity.timeout (F5)",
    "flink.watermark.sync.queue.capacity": "queues are bounded by flink.shard.queue.records and flink.shard.queue.bytes (P6)",
    "aws.credentials.provider.custom.class": "it names a Java class",
    "aws.credentials.provider.role.provider": "the role is assumed with the SDK's own chain of credentials",
    "aws.clientconfig.": "it names properties of the Java SDK",
    "aws.http-client.": "it sets the Java SDK's HTTP client",
    "aws.trust.all.certificates": "certificates are always checked",
}
"""Keys of Flink, or prefixes of them, that have no effect here, with the reason."""

_DEAD_LETTER, _SINK = "flink.deadletter.", "flink.sink."
"""The beginning of the keys of the dead-letter sink, and that of a sink: each setting of a sink is one of the dead-letter sink too."""


class UnknownPropertyWarning(UserWarning):
    """A property is not known and has no effect."""


def refuse_if_misspelt(key: str) -> None:
    """Check a key that was meant for us and is not known. If it resembles no known key, log a warning, with the reason if it is Flink's.

    Raises: ConfigurationError, which names the nearest key, if it resembles one.
    """
    if is_unknown(key) and reason_of_flink(key) is None and (hint := nearest_hint(key)):
        raise ConfigurationError(key, reason=f"there is no such property{hint}")
    if told := without_effect(key):
        log.warning("%s", told)


def without_effect(key: str) -> str:
    """Return that a key is unknown, or why a key of Flink's has no effect here; "" for another key."""
    if not is_unknown(key):
        return ""
    reason = reason_of_flink(key)
    return f"property '{key}' has no effect here: {reason}" if reason else f"unknown property '{key}' is ignored"


def is_unknown(key: str) -> bool:
    """Return whether a key was meant for us and has no effect."""
    return not _is_declared(key.lower()) and _is_meant_for_us(key.lower())


def reason_of_flink(key: str) -> str | None:
    """Return why a key of Flink's has no effect here, or None for a key that Flink does not have."""
    return next((reason for start, reason in _REASONS.items() if key.lower().startswith(start)), None)


def unknown_key_near(key: str, given: Iterable[str]) -> str:
    """Return a hint why a property may not be set: a key without effect that is spelt nearly like it; "" if there is none."""
    unknown = [each for each in given if not _is_declared(each.lower())]
    near = difflib.get_close_matches(key, unknown, n=1, cutoff=0.8)
    return f"'{near[0]}' is set, which is not a property" if near else ""


def knows_any(given: Iterable[str]) -> bool:
    """Return whether any of the keys is a property, or was meant to be one."""
    return any(_is_declared(key.lower()) or key.lower().startswith(("flink.", "aws.")) for key in given)


def _is_declared(lower_key: str) -> bool:
    declared = find_property(lower_key)
    if declared is not None:
        return not declared.is_prefix
    if lower_key.startswith(_DEAD_LETTER):
        return _is_declared(lower_key.replace(_DEAD_LETTER, _SINK, 1))
    return any(prefix.is_prefix and lower_key.startswith(prefix.key.lower()) for prefix in declared_properties())


def _is_meant_for_us(lower_key: str) -> bool:
    """Return whether a key has our prefix or a plugin's, a prefix that is nearly ours, or none (`initpos`, `stream.initpos`)."""
    stem, dot, _ = lower_key.replace("_", "-").partition(".")
    if not dot or stem in {known.partition(".")[0] for known in declared_keys()}:
        return True
    return bool(difflib.get_close_matches(stem, _PREFIXES, n=1, cutoff=0.8)) or bool(_ending_in(lower_key))


def _ending_in(lower_key: str) -> list[str]:
    """Return the known keys that consist of a prefix and this key, shortest first."""
    return sorted((known for known in declared_keys() if known.endswith("." + lower_key)), key=len)


def nearest_hint(key: str) -> str:
    """Return a question for the nearest known key, as the end of a message, or "" if none is near."""
    lower_key = key.lower()
    if lower_key.startswith(_DEAD_LETTER):
        return nearest_hint(lower_key.replace(_DEAD_LETTER, _SINK, 1)).replace(f"'{_SINK}", f"'{_DEAD_LETTER}")
    with_hyphens = find_property(lower_key.replace("_", "-"))
    if with_hyphens is not None:
        return f"; did you mean '{with_hyphens.key}'?"
    spelled = lower_key.replace("_", ".")  # as in AWS_REGION
    complete = (f"{prefix}.{spelled}" for prefix in _PREFIXES)
    nearest = (
        _nearest_of_plugin(spelled)
        or _ending_in(spelled)
        or next(filter(None, map(_nearest, (spelled, *complete))), [])
    )
    declared = find_property(nearest[0]) if nearest else None
    return f"; did you mean '{declared.key}'?" if declared else ""


def _nearest_of_plugin(lower_key: str) -> list[str]:
    """Return the nearest key of the plugin or part that a key such as `flink.sink.sql.tabel` names, with or without `flink.sink`."""
    *parents, plugin, _ = ["", *lower_key.split(".")]
    starts = (f"{'.'.join([*parents[1:], plugin])}.", f"{plugin}.")
    known = [key for key in declared_keys() if key.startswith(starts)] if len(parents) > 2 else []
    by_name = {key.rpartition(".")[2]: key for key in known}
    return [by_name[name] for name in difflib.get_close_matches(lower_key.rpartition(".")[2], by_name, n=1, cutoff=0.4)]


def _nearest(lower_key: str) -> list[str]:
    return difflib.get_close_matches(lower_key, declared_keys(), n=1)

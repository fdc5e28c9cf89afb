"""The groups of our own properties, and their keyword arguments: `region="eu-west-1"` for `aws.region` (C1)."""

import difflib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from ..errors import ConfigurationError
from ..password_masking import MASK
from .declaration import Property, declared_properties, is_secret
from .groups import (
    access,
    bad_records,
    discovery_and_state,
    fanout,
    files_and_tables,
    formats,
    job,
    kinesis_sink,
    metrics,
    polling,
    publisher,
    queue,
    retries,
    sinks,
    values_and_time,
)
from .max_outage import JOB

GROUPS = (
    access.ACCESS,
    JOB,
    publisher.PUBLISHER,
    polling.POLLING,
    fanout.FAN_OUT,
    polling.DYNAMODB_STREAMS,
    queue.QUEUE,
    discovery_and_state.DISCOVERY_AND_STATE,
    values_and_time.VALUES_AND_TIME,
    formats.FORMATS,
    bad_records.BAD_RECORDS,
    discovery_and_state.MEMORY,
    retries.RETRIES,
    sinks.SINKS,
    files_and_tables.FILES_AND_TABLES,
    kinesis_sink.KINESIS_SINK,
    metrics.METRICS,
    metrics.TRACING,
    job.ALARMS,
)

_OF_SINKS = "flink.sink."
_OTHER_NAMES = {
    **{"region_name": "region", "bootstrap_servers": "region", "endpoint_url": "endpoint", "group_id": "job_name"},
    **dict.fromkeys(("initial_position", "initial_position_in_stream", "auto_offset_reset"), "start"),
}
"""Keywords of boto3, the KCL and Kafka's clients, with our keyword for each."""
SIMILAR = 0.75
"""Similarity from which on a spelling is suggested: with 0.72 `region` was suggested for `begin`."""


def property_of_keyword(keyword: str, value: object) -> Property[Any]:
    """Return the property that a keyword argument stands for.

    Raises: ConfigurationError, with the nearest keyword, if there is none.
    """
    known = properties_by_keyword()
    if keyword not in known:
        hint = "".join(f"; did you mean '{nearest}'?" for nearest in _nearest(keyword, known)[:1])
        valid = "a key of `recordpublisher properties` without flink. or aws., with _ for each dot; a plugin's keys go into a mapping"
        shown = MASK if is_secret(keyword) else value
        of_plugin = [
            each.key
            for each in declared_properties()
            if keyword in (each.keywords[-1], each.key.replace("-", "_").replace(".", "_"))
        ]
        if of_plugin:
            hint = f": it is a plugin's property, and given as {{'{of_plugin[0]}': ...}} in `properties`, a mapping"
        raise ConfigurationError(keyword, shown, valid, reason=f"there is no such keyword argument{hint}")
    return known[keyword]


@cache
def properties_by_keyword() -> dict[str, Property[Any]]:
    """Return each property of the table by its keywords. A prefix has no keyword, because it stands for many keys."""
    of_the_table = [declared for group in GROUPS for declared in group.properties if not declared.is_prefix]
    of_dead_letters = [_for_dead_letters(each) for each in of_the_table if each.key.startswith(_OF_SINKS)]
    return {keyword: declared for declared in [*of_the_table, *of_dead_letters] for keyword in declared.keywords}


def _for_dead_letters(declared: Property[Any]) -> Property[Any]:
    key = bad_records.DEAD_LETTER.key + declared.key.removeprefix(_OF_SINKS)
    return replace(declared, key=key, sentence=f"`{declared.key}` of the dead-letter sink.", aliases=(), argument="")


def _nearest(keyword: str, known: Mapping[str, Property[Any]]) -> list[str]:
    """Return our keywords that are nearest to an unknown one.

    These are ours for a keyword of another library; else those whose key, unless it is a sink's, ends in the given
    words (`initpos`); else those with a similar spelling.
    """
    if keyword in _OTHER_NAMES:
        return [_OTHER_NAMES[keyword]]
    ending = "." + keyword.replace("_", ".")
    of_sinks = (_OF_SINKS, bad_records.DEAD_LETTER.key)
    keys = {name: declared.key for name, declared in known.items() if not declared.key.startswith(of_sinks)}
    with_ending = [name for name, key in keys.items() if key.endswith(ending)]
    return with_ending or difflib.get_close_matches(keyword, known, n=1, cutoff=SIMILAR)

"""Declares the properties of the publisher and its initial position."""

from ..declaration import PropertyValues
from ..property_types import PropertyGroup, parse_with_unit
from ..times import epoch_ms

PUBLISHER = PropertyGroup("Publisher")
RECORD_PUBLISHER = PUBLISHER.plugin_name(
    "flink.stream.recordpublisher",
    "The publisher that reads the shards: POLLING, EFO, QUEUE, DYNAMODB_STREAMS, or that of a plugin, so type checkers accept any text.",
    "POLLING",
    argument="publisher",
)


def uses_fan_out(properties: PropertyValues) -> bool:
    """Return whether the job's publisher is EFO."""
    return properties.value(RECORD_PUBLISHER) == "EFO"


def _age_or_time(text: str) -> None:
    """Check a start that is an age or a time. Raises: ValueError or OverflowError if `text` is neither."""
    if parse_with_unit(text, "ms") is None:
        epoch_ms(text)


INITIAL_POSITION = PUBLISHER.choice(
    "flink.stream.initpos",
    "Where a new job starts. LATEST and an age become a time of the service's clock once.",
    "LATEST",
    ("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"),
    note="with flink.stream.initpos.timestamp",
    other=_age_or_time,
    valid_other="earliest, an age such as 1h, or a time: 2026-11-22T06:00:00Z, epoch seconds",
    argument="start",
)
INITIAL_TIMESTAMP = PUBLISHER.text(
    "flink.stream.initpos.timestamp",
    "Start for AT_TIMESTAMP: epoch seconds, ISO-8601 with a zone, or text in the given format (UTC without one).",
    argument="start_timestamp",
)
INITIAL_TIMESTAMP_FORMAT = PUBLISHER.text(
    "flink.stream.initpos.timestamp.format",
    "Java SimpleDateFormat of the start timestamp, with a year.",
    "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    argument="start_timestamp_format",
)

"""Refuses what needs positions, where the source has none, such as a queue: each with a sentence that says what to do."""

from typing import Any

from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNMENT, STATE_URI
from recordpublisher.publishers.properties.groups.publisher import RECORD_PUBLISHER
from recordpublisher.publishers.properties.groups.values_and_time import LOOKAHEAD, MAX_LAG, TIMESTAMP_FIELD, TRACKER
from recordpublisher.publishers.properties.properties import Properties

_NO_WATERMARKS = (
    "a queue keeps no order, so it has no watermarks; leave it out, and take the time from the record's value"
)
_REFUSED: dict[Property[Any], str] = {
    STATE_URI: "nothing is stored: the queue keeps what is not acknowledged; leave it out",
    LOOKAHEAD: _NO_WATERMARKS,
    MAX_LAG: _NO_WATERMARKS,
    TIMESTAMP_FIELD: _NO_WATERMARKS,
}
_REFUSED_ARGUMENTS = {
    "restore": "a queue has no positions to restore; leave it out",
    "state_store": "nothing is stored: the queue keeps what is not acknowledged; leave it out",
    "timestamp_assigner": _NO_WATERMARKS,
    "watermark_assigner": _NO_WATERMARKS,
    "streams": "a function of streams is for sources with positions; give their names",
    "until_event_time": "a queue keeps no order in time; use max_time, max_records or stop_at_tip",
}


def check_without_positions(properties: Properties, **arguments: object) -> None:
    """Raises: ConfigurationError for a property, or an argument that is given, which a job of such a source cannot have."""
    for declared, reason in _REFUSED.items():
        if (value := properties.value(declared)) is not None:
            raise ConfigurationError(declared.key, value, reason=reason)
    if properties.value(SHARD_ASSIGNMENT) == "ELASTIC":
        reason = "processes share a queue without a group; start as many as are needed"
        raise ConfigurationError(SHARD_ASSIGNMENT.key, "ELASTIC", "STATIC", reason=reason)
    if properties.value(TRACKER) != "IN_PROCESS":
        raise ConfigurationError(TRACKER.key, properties.as_given(TRACKER), reason=_NO_WATERMARKS)
    for name, value in arguments.items():
        if value is not None and value != ():
            raise ConfigurationError(name, repr(value)[:200], reason=_REFUSED_ARGUMENTS[name])


def reads_a_queue(properties: Properties) -> bool:
    """Whether the job's publisher is one of such a source; False for one that is not installed, of which somebody else tells."""
    from ..host.build_from_properties import publisher_class
    from ..host.manager import load_registry  # with pluggy, which most commands do without

    registry = load_registry()
    try:
        return publisher_class(registry, properties).visibility_seconds is not None
    except RecordPublisherError:
        return False


def check_has_positions(publisher: type[RecordPublisherFactory], name: str, what: str) -> None:
    """Raises: ConfigurationError when the source has no positions, which `what` needs."""
    if publisher.visibility_seconds is not None:
        reason = f"{what} needs positions, and a queue has none"
        raise ConfigurationError(
            RECORD_PUBLISHER.key, name, "POLLING or EFO, which read the queue's stream", reason=reason
        )

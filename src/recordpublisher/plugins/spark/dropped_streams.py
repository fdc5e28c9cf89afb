"""Finds the streams of a checkpoint that are no longer read, and refuses a checkpoint that has none of the query's streams."""

from __future__ import annotations

from collections.abc import Iterable

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.stream_arns import stream_name


def dropped_streams(known: Iterable[str], streams: Iterable[str]) -> set[str]:
    """The names in `known`, the streams of the checkpoint, that are not in `streams`, the names or ARNs of the options.

    Raises: ConfigurationError when none of the known streams is left: the checkpoint belongs to another job.
    """
    known, wanted = set(known), {stream_name(stream) for stream in streams}
    if known and not known & wanted:
        names = ", ".join(sorted(known))
        valid = f"streams with {names} among them, or a new checkpointLocation and a new metadataLocation"
        raise ConfigurationError(
            "stream",
            ", ".join(sorted(wanted)),
            valid,
            reason=f"this query has read {names} so far, and positions are kept",
        )
    return known - wanted

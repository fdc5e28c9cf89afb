"""Which streams of a checkpoint are not read any more. A checkpoint of other streams only is refused."""

from __future__ import annotations

from collections.abc import Iterable

from recordpublisher.publishers.errors import ConfigurationError


def dropped_streams(known: Iterable[str], streams: Iterable[str]) -> set[str]:
    """The names among `known`, which the query has read so far, that are not among `streams`, the names or ARNs of the options.

    Raises: ConfigurationError when none of the known streams is left: the checkpoint belongs to another job.
    """
    known, wanted = set(known), {name_of(stream) for stream in streams}
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


def name_of(stream: str) -> str:
    """The name of a stream given by name or ARN (arn:aws:kinesis:region:account:stream/name)."""
    return stream.rpartition("/")[2] if stream.startswith("arn:") else stream

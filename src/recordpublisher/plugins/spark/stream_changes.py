"""Whether a checkpoint is of the streams that are to be read now: one whose streams are all others is a mistake."""

from __future__ import annotations

from collections.abc import Iterable

from recordpublisher.publishers.errors import ConfigurationError


def dropped_streams(known: Iterable[str], streams: Iterable[str]) -> set[str]:
    """Which are not read any more: `known` are the streams (names) that were read so far, `streams` those of the options (names or ARNs).

    Some that go and some that come are a change of the job. Raises: ConfigurationError when nothing is left of the job.
    """
    known, wanted = set(known), {name_of(stream) for stream in streams}
    if known and not known & wanted:
        told = ", ".join(sorted(known))
        valid = f"streams with {told} among them, or a new checkpointLocation and a new metadataLocation"
        raise ConfigurationError(
            "stream",
            ", ".join(sorted(wanted)),
            valid,
            reason=f"this query has read {told} so far, and positions are kept",
        )
    return known - wanted


def name_of(stream: str) -> str:
    """The name of a stream given by name or ARN (arn:aws:kinesis:region:account:stream/name)."""
    return stream.rpartition("/")[2] if stream.startswith("arn:") else stream

"""The reader of stored documents: JSON that a release of ours has written, or somebody else. A struct says what each contains."""

from typing import Annotated, Any, TypeVar

import msgspec

from recordpublisher.publishers.errors import StateError

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Millis = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""Epoch ms, or a watermark."""
Sequence = Annotated[str, msgspec.Meta(max_length=256)]
"""A sequence number; those of Kinesis have 56 digits."""
ShardKey = Annotated[str, msgspec.Meta(pattern="./[^/]+$")]
"""`Shard.key`: stream and shard id."""
WorkerName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
REMEDY = "if it is not of this job, move it away; if it is, put back what was stored before"
T = TypeVar("T")


def read_document(value: bytes | str, kind: type[T], place: str, format_number: int | None = None) -> T:
    """A document as `kind`, a struct or another type. Raises: StateError naming the place, what does not fit, and the remedy.

    `format_number`: the only format that is read; it is looked at first, since a later one may have other types.
    """
    try:
        if format_number is not None and (stored := msgspec.json.decode(value, type=_Format).format) != format_number:
            raise StateError(
                f"{place} cannot be read: it has format {stored}, this version reads format {format_number}"
            )
        return msgspec.json.decode(value, type=kind)
    except _UNREADABLE as error:
        raise unreadable(place, error) from error


def check_document(content: Any, kind: type[T], place: str) -> T:
    """The same for a document that was parsed already."""
    try:
        return msgspec.convert(content, kind)
    except _UNREADABLE as error:
        raise unreadable(place, error) from error


def unreadable(place: str, error: object) -> StateError:
    """What is raised for a document that does not fit."""
    return StateError(f"{place} cannot be read: {error}; {REMEDY}")


class _Format(msgspec.Struct):
    format: int = 1


_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)

"""Reads stored documents: JSON that a release of this library wrote, or another program.

A struct describes what each document contains.
"""

from typing import Annotated, Any, TypeVar

import msgspec

from recordpublisher.publishers.errors import StateError

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Millis = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""A time in epoch ms, or a watermark."""
Sequence = Annotated[str, msgspec.Meta(max_length=256)]
"""A sequence number; Kinesis has numbers of 56 digits."""
ShardKey = Annotated[str, msgspec.Meta(pattern="./[^/]+$")]
"""`Shard.key`: stream name and shard id."""
WorkerName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
REMEDY = "if it is not of this job, move it away; if it is, put back what was stored before"
T = TypeVar("T")


def read_document(value: bytes | str, kind: type[T], place: str, format_number: int | None = None) -> T:
    """Return a document as `kind`, which is a struct or another type.

    If `format_number` is given, only that format is read. The format is checked first, because a later one may have other types.

    Raises: StateError, with the place, what does not fit and the remedy, if the document cannot be read.
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
    """Return a parsed document as `kind`. Raises: StateError, with the place and the remedy, if it does not fit."""
    try:
        return msgspec.convert(content, kind)
    except _UNREADABLE as error:
        raise unreadable(place, error) from error


def unreadable(place: str, error: object) -> StateError:
    """Return the error for a document that does not fit."""
    return StateError(f"{place} cannot be read: {error}; {REMEDY}")


class _Format(msgspec.Struct):
    format: int = 1


_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)

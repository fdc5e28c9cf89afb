"""Decides what the reader of an archived shard does next, from the ranges of the shard's files (`next_step`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import Any

from recordpublisher.publishers.positions import WHOLE_RECORD, PositionType, SequenceNumber, StartingPosition

from ..sinks.archived_shards import AT, BEGIN

OrderKey = tuple[Any, float]
"""A position that can be compared: the order of a sequence number, and the last sub-record that was read (`inf` for the whole record).
"""
OrderOf = Callable[[str], Any]
_POSITION = r"[A-Za-z0-9.-]+?\.(?:-1|\d+)"
_RANGE = re.compile(
    rf"(?P<after>{BEGIN}|(?P<at>{AT}-)?(?P<first>{_POSITION}))_(?P<through>{_POSITION})"
    r"(?:\.(?P<part>\d+)of(?P<parts>\d+))?(?:\.[0-9a-f]{12})?"
)
_WITHOUT_RANGE = re.compile(rf"(?P<first>{_POSITION})-(?P<through>{_POSITION})(?:\.[0-9a-f]{{12}})?")


def next_step(at: Seam) -> Step:
    """Return what the reader of a shard does next, from the facts about its position."""
    if at.file is not None and at.file.follows(at.place):
        return Step.READ
    if at.file is None:
        if at.is_complete:
            return Step.END
        return Step.LIVE if at.is_live else Step.LOST
    if at.is_live and at.stream_has_following:
        return Step.LIVE
    return Step.LOST if at.is_owed else Step.SKIP


class Step(Enum):
    """The next step of the reader of a shard.

    - READ: read the next file.
    - LIVE: read the live stream.
    - END: end the shard, because it is complete.
    - SKIP: start at the next file, because the records before it are not needed.
    - LOST: report lost records: they are in no file, and the stream no longer has them.
    """

    READ = "read"
    LIVE = "live"
    END = "end"
    SKIP = "skip"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RangeFile:
    """Files that together have every record of one shard after the position `after`, up to `through`.

    - `paths`: one file, or one for each partition; none if no record of the range could be written.
    - `after`: None if the files begin with the shard's first record.
    - `after_text`: the position `after` as the file's name has it.
    - `end`: `through` as a sequence number.
    - `is_proven`: False if the file's name has no range. Then records before the file may be missing.
    """

    paths: tuple[str, ...]
    after: OrderKey | None
    through: OrderKey
    end: SequenceNumber
    after_text: str
    is_proven: bool = True

    @property
    def is_continuation(self) -> bool:
        """Whether this range begins where another one ended. Then an earlier file of the shard must have existed."""
        return self.after is not None and not self.after_text.startswith(f"{AT}-")

    def follows(self, place: OrderKey | None) -> bool:
        """Return whether no record is missing between the position `place` and the first record of these files."""
        return self.after is None or not self.is_proven or (place is not None and self.after <= place)


@dataclass(frozen=True, slots=True)
class Seam:
    """The facts that decide how a read continues where a shard's files end, or where a file is missing.

    - `place`: the reader's position; None if it has read nothing.
    - `file`: the next file with records after `place`.
    - `is_complete`: whether the shard ends at or before `place`.
    - `is_owed`: whether a missing record counts as lost; False at the first start of a shard.
    - `is_live`: whether the live stream is read and lists the shard.
    - `stream_has_following`: whether the stream still has the records between `place` and `file`.
    """

    place: OrderKey | None
    file: RangeFile | None
    is_complete: bool
    is_owed: bool
    is_live: bool
    stream_has_following: bool = False


def order_key_of(position: SequenceNumber, order_of: OrderOf) -> OrderKey:
    """Return a position in a form that can be compared."""
    part = position.sub_sequence
    return order_of(position.sequence), inf if part == WHOLE_RECORD else part


def starting_order_key(start: StartingPosition, order_of: OrderOf) -> OrderKey | None:
    """Return the position after which a read starts, or None if the start names no sequence number."""
    if start.skip_through is not None:
        return order_key_of(start.skip_through, order_of)
    if start.sequence_number is None:
        return None
    position = SequenceNumber(start.sequence_number)
    is_included = start.type is PositionType.AT_SEQUENCE_NUMBER
    return order_key_before(position, order_of) if is_included else order_key_of(position, order_of)


def position_from(text: str) -> SequenceNumber:
    """Return the position in a text that `position_text` has made."""
    number, _, part = text.rpartition(".")
    return SequenceNumber(number, int(part))


def order_key_before(first: SequenceNumber, order_of: OrderOf) -> OrderKey:
    """Return the position just before a record."""
    order, part = order_of(first.sequence), first.sub_sequence
    return order, -1.0 if part == WHOLE_RECORD else part - 0.5


def is_complete(place: OrderKey | None, through: str, order_of: OrderOf, is_owed: bool) -> bool:
    """Return whether an archived shard has nothing left to read after `place` (None if nothing was read yet).

    - `through`: the shard's end in its `ShardDocument`: a position; BEGIN if the shard had no records; or AT if the writing job started too
      late to read any.
    - `is_owed`: whether a missing record counts as lost. If it does not, the result is also True if `place` is None or `through` is AT.
    """
    if through == BEGIN:
        return True
    if through == AT or place is None:
        return not is_owed
    return place >= order_key_of(position_from(through), order_of)


def ranges_of(files: Iterable[tuple[str, str]], order_of: OrderOf) -> list[RangeFile]:
    """Return the ranges of a shard's files, in the order in which they are read.

    - `files`: the path of each file, and its name without the suffix.

    A range in several partitions is left out until the files of all of its partitions exist. If old files were deleted, the ranges begin
    with the first file that is left.
    """
    whole: dict[tuple[str, str], RangeFile] = {}
    parts: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
    for path, name in files:
        parsed = _RANGE.fullmatch(name)
        is_proven = parsed is not None
        parsed = parsed or _WITHOUT_RANGE.fullmatch(name)
        if parsed is None:
            continue
        of = parsed.groupdict()
        key = (of.get("after") or f"{AT}-{of['first']}", of["through"])
        if of.get("parts"):
            parts.setdefault(key, {}).setdefault(of["parts"], {}).setdefault(of["part"], []).append(path)
        elif is_proven or key not in whole:
            whole[key] = _range_file(key, (path,) if path else (), order_of, is_proven)
    for key, by_count in parts.items():
        for count, found in by_count.items():
            if len(found) == int(count) and key not in whole:
                whole[key] = _range_file(key, tuple(path for paths in found.values() for path in paths), order_of, True)
    first = (-inf,)
    return _from_first_file(
        sorted(whole.values(), key=lambda file: (first if file.after is None else (0, *file.after), file.through))
    )


def _from_first_file(ranges: list[RangeFile]) -> list[RangeFile]:
    begin, reached = 0, None
    for index, file in enumerate(ranges):
        if reached is not None and not file.follows(reached):
            begin = index
        reached = file.through if reached is None else max(reached, file.through)
        if file.paths:
            return ranges[begin:]
    return ranges


def _range_file(key: tuple[str, str], paths: tuple[str, ...], order_of: OrderOf, is_proven: bool) -> RangeFile:
    after, through = key
    end = position_from(through)
    found = RangeFile(paths, None, order_key_of(end, order_of), end, after, is_proven)
    if after == BEGIN:
        return found
    if not after.startswith(f"{AT}-"):
        return replace(found, after=order_key_of(position_from(after), order_of))
    return replace(found, after=order_key_before(position_from(after.removeprefix(f"{AT}-")), order_of))

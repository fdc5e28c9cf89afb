"""Shards of a stream (`Shard`) and their JSON form, and the names and ARNs of streams."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .errors import ConfigurationError

MAX_HASH_KEY = 2**128 - 1
_HASH_KEY_DIGITS = 39
_NUMBERED = re.compile(r"shardId-\d{12}")
_RECEIVER = re.compile(r"receiver-\d{3,}")
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True)
class HashRange:
    """A range of 128-bit MD5 hash keys, from `start` to `end`. Both ends belong to it."""

    start: int = 0
    end: int = MAX_HASH_KEY

    def __contains__(self, hash_key: int) -> bool:
        return self.start <= hash_key <= self.end

    @classmethod
    def parse(cls, start: str, end: str) -> HashRange:
        """Return the range between two hash keys, given as decimal text, as the service sends them.

        Raises: ValueError if a text is not a hash key, or if `start` is greater than `end`.
        """
        first, last = hash_key_from(start), hash_key_from(end)
        if first is None or last is None or first > last:
            raise ValueError(f"not a range of hash keys: {start[:80]!r} to {end[:80]!r}")
        return cls(first, last)

    @property
    def middle(self) -> int:
        """The hash key in the middle of the range."""
        return (self.start + self.end) // 2


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of one stream, as listed.

    - `stream`: the stream's name, even if the user gave an ARN.
    - `stream_arn`: the stream's ARN if it is known.
    - `parents`: the ids of the shards that were split or merged into this one.
    - `closed`: whether it accepts no more records. A closed shard is still read to its end.
    - `starting_sequence_number`: where the shard begins, as Kinesis lists it. All records have greater numbers.
    - `is_unlisted`: whether the stream does not list the shard. Its publisher then reads it from somewhere else.
    """

    stream: str
    shard_id: str
    parents: tuple[str, ...] = ()
    hash_range: HashRange = field(default_factory=HashRange)
    closed: bool = False
    stream_arn: str | None = None
    starting_sequence_number: str | None = field(default=None, compare=False)
    is_unlisted: bool = field(default=False, compare=False)

    @property
    def key(self) -> str:
        """The key `stream/shard-id`, which names a shard in state, metrics and logs."""
        return f"{self.stream}/{self.shard_id}"

    @property
    def may_grow(self) -> bool:
        """Whether a later job may find more records, although the publisher ends the shard: an archive may have more of an open shard."""
        return self.is_unlisted and not self.closed

    def begins_at(self, sequence_number: str | None) -> bool:
        """Return whether all records of the shard come after this sequence number. False if that is not known."""
        first = self.starting_sequence_number
        return first is not None and sequence_number is not None and int(sequence_number) <= int(first)


class OldestRecord(msgspec.Struct, frozen=True):
    """The sequence number and arrival (epoch ms) of the oldest record that a shard still has. Both are None if the shard has no record."""

    sequence: str | None = None
    arrival_ms: int | None = None


def shard_to_json(shard: Shard) -> dict[str, Any]:
    """Return a shard as a plain dict for JSON, without empty entries."""
    keys = shard.hash_range
    # A number would be imprecise: many JSON readers lose digits above 2**53. So the hash range is hexadecimal text.
    entries = {
        "stream": shard.stream,
        "id": shard.shard_id,
        "parents": list(shard.parents),
        "range": None if keys == HashRange() else f"{keys.start:x}-{keys.end:x}",
        "arn": shard.stream_arn,
    }
    return {name: value for name, value in entries.items() if value}


def stored_shard_from(entries: Mapping[str, Any]) -> Shard:
    """Return the shard of a dict that `shard_to_json` has made.

    Raises: KeyError if the stream or id is missing, ValueError if the hash range is malformed.
    """
    start, end = (entries.get("range") or f"0-{MAX_HASH_KEY:x}").split("-")
    return Shard(
        stream=entries["stream"],
        shard_id=entries["id"],
        parents=tuple(entries.get("parents", ())),
        hash_range=HashRange(int(start, 16), int(end, 16)),
        stream_arn=entries.get("arn"),
    )


def receiver_shard(stream: str, number: int) -> Shard:
    """Return a Shard that stands for receiver `number` of a queue (from 0) in batches, metrics and logs. A queue has no shards.

    A *receiver* is the part of a job that receives records from the queue, with one call at a time.
    """
    return Shard(stream, f"receiver-{number:03}")


def is_receiver(shard_id: str) -> bool:
    """Return whether a shard id was made by `receiver_shard`. It then stands for a receiver of a queue, and not for a shard.

    Records of a queue have no positions.
    """
    return _RECEIVER.fullmatch(shard_id) is not None


def stream_of(key: str) -> str:
    """Return the stream's name in a `Shard.key`."""
    return key.rpartition("/")[0]


def is_listing_older_than(shard: Shard, listed: Iterable[Shard]) -> bool:
    """Return whether a listing was made before `shard` was created. Then the shard may exist although the listing lacks it.

    False for an empty listing, and for shard ids in another form than those of Kinesis.
    """
    # Kinesis numbers the shards of a stream in the order of creation, and the oldest expire first. So if a shard is newer than every listed
    # one, it has not expired: ListShards is eventually consistent and may lack the children of a shard at first.
    ids = [each.shard_id for each in listed if each.stream == shard.stream]
    return bool(ids) and all(map(_NUMBERED.fullmatch, (shard.shard_id, *ids))) and max(ids) < shard.shard_id


def is_ancestor(old: Shard, young: Shard) -> bool:
    """Return whether `old` is older than `young`, and their hash ranges overlap. False for shard ids in another form than Kinesis's."""
    # Kinesis numbers the shards of a stream in the order of creation, and at any time one shard accepts each hash key. The ids are matched
    # last: an archive may have thousands of old shards, each compared with every shard that is read.
    ours, theirs = old.hash_range, young.hash_range
    if ours.start > theirs.end or theirs.start > ours.end or old.shard_id >= young.shard_id:
        return False
    return old.stream == young.stream and all(map(_NUMBERED.fullmatch, (old.shard_id, young.shard_id)))


def first_unlisted_range(listed: Iterable[Shard]) -> HashRange | None:
    """Return the first range of hash keys that no open shard of a listing covers, or None if the listing is complete."""
    # The open shards of a stream together accept every hash key at any time. ListShards is eventually consistent, and may lack some of
    # them.
    next_key = 0
    for taken in sorted((shard.hash_range for shard in listed if not shard.closed), key=lambda taken: taken.start):
        if taken.start > next_key:
            return HashRange(next_key, taken.start - 1)
        next_key = max(next_key, taken.end + 1)
    return HashRange(next_key, MAX_HASH_KEY) if next_key <= MAX_HASH_KEY else None


def is_valid_name(text: str) -> bool:
    """Return whether `text` can be the name of a stream or a shard id: at most 128 letters, digits, or `_`, `.`, `-`.

    Such a name is also safe in a path.
    """
    return _NAME.fullmatch(text) is not None


def hash_key_from(text: str) -> int | None:
    """Return a hash key as a number, or None if the text is not a decimal number below 2^128."""
    # Longer text is not converted, because Python's time for it grows with the square of its length.
    if len(text) > _HASH_KEY_DIGITS or not (text.isascii() and text.isdecimal()):
        return None
    hash_key = int(text)
    return hash_key if hash_key <= MAX_HASH_KEY else None


def canonical_hash_key(text: str | None) -> str | None:
    """Return the explicit hash key of a sub-record as the service writes it, or None if the text is not a hash key."""
    # A producer can write any text into an aggregate. If it is not a number below 2^128, it has not decided the shard.
    number = None if text is None else hash_key_from(text)
    return None if number is None else str(number)


# Names and ARNs of streams, and the ARNs of consumers of enhanced fan-out.
#
# A user gives a job its streams as names, as ARNs, or as NAME=ARN. The last form gives a name of its own to one of two streams that have
# the same name in different regions or accounts. Records, state and metrics have that name.

_STREAM_ARN = re.compile(r"arn:[^:]+:kinesis:(?P<region>[^:]+):(?P<account>[^:]*):stream/[^/]+$")
_OWN_NAME = re.compile(r"(?P<name>[a-zA-Z0-9_.-]{1,128})=(?P<arn>arn:.+)")
_CONSUMER_ARN = re.compile(
    r"(?P<stream_arn>arn:[^:]+:kinesis:[^:]*:[^:]*:stream/(?P<stream>[^/:]+))/consumer/(?P<name>[^/:]+)(:\d+)?"
)


def arn_of(stream: str) -> str | None:
    """Return the ARN of a stream that was given as an ARN or as NAME=ARN. Return None if it was given by its name."""
    named = _OWN_NAME.fullmatch(stream)
    if named is not None:
        return named["arn"]
    return stream if stream.startswith("arn:") else None


def is_named_arn(stream: str) -> bool:
    """Return whether a stream was given as NAME=ARN. NAME is then its name in records, state and metrics."""
    return _OWN_NAME.fullmatch(stream) is not None


def stream_name(stream: str) -> str:
    """Return the name of a stream that was given as a name, as an ARN or as NAME=ARN.

    The ARN may be of another service than Kinesis.
    """
    named = _OWN_NAME.fullmatch(stream)
    return stream.rpartition("/")[2] if named is None else named["name"]


def region_of_arn(arn: str) -> str:
    """Return the region in the ARN of a Kinesis stream. Raises: ConfigurationError if `arn` is anything else."""
    return _parts_of(arn)["region"]


def account_of_arn(arn: str) -> str:
    """Return the account id in the ARN of a Kinesis stream. Raises: ConfigurationError if `arn` is anything else."""
    return _parts_of(arn)["account"]


def _parts_of(arn: str) -> re.Match[str]:
    found = _STREAM_ARN.match(arn)
    if found is None:
        raise ConfigurationError("stream", arn, "a stream name, or arn:aws:kinesis:REGION:ACCOUNT:stream/NAME")
    return found


class ConsumerArn(msgspec.Struct, frozen=True):
    """The ARN of a registered consumer: `<stream ARN>/consumer/<name>:<time of registration>`.

    The time distinguishes consumers that had the same name one after the other. Some servers leave it out.
    """

    text: str
    stream_arn: str
    stream: str
    name: str

    @classmethod
    def parse(cls, text: str) -> ConsumerArn | None:
        """Return the parts of a consumer's ARN, or None if the text is not the ARN of a stream consumer."""
        found = _CONSUMER_ARN.fullmatch(text)
        return None if found is None else cls(text, found["stream_arn"], found["stream"], found["name"])

    def __str__(self) -> str:
        return self.text

"""The field types of the operations' inputs, as the service's API model declares them.

A pattern is enclosed in `^(?:` and `)\\Z`; errors show it without them.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from recordpublisher.publishers.service_limits import (
    GET_RECORDS_RECORDS,
    LARGEST_RECORD_BYTES,
    PARTITION_KEY_CHARACTERS,
)


def text(most: int, pattern: str) -> Meta:
    """Return the constraints of a text that has at least one character."""
    return Meta(min_length=1, max_length=most, pattern=rf"^(?:{pattern})\Z")


Name = Annotated[str, text(128, r"[a-zA-Z0-9_.-]+")]
Arn = Annotated[str, text(2048, r"arn:aws.*:kinesis:.*:\d{12}:stream/\S+")]
ResourceArn = Annotated[str, text(2048, r"arn:aws.*:kinesis:.*:\d{12}:.*(stream|channel|queue)/\S+")]
Number = Annotated[str, Meta(pattern=r"^(?:0|([1-9]\d{0,128}))\Z")]
HashKey = Annotated[str, Meta(pattern=r"^(?:0|([1-9]\d{0,38}))\Z")]
PartitionKey = Annotated[str, Meta(min_length=1, max_length=PARTITION_KEY_CHARACTERS)]
TagKey = Annotated[str, Meta(min_length=1, max_length=128)]
Tags = Annotated[dict[TagKey, Annotated[str, Meta(max_length=256)]], Meta(min_length=1, max_length=200)]
RecordDistribution = Literal["AUTO", "USER_PARTITION_KEY"]
Count = Annotated[int, Meta(ge=1, le=GET_RECORDS_RECORDS)]
RecordKibibytes = Annotated[int, Meta(ge=1024, le=LARGEST_RECORD_BYTES // 1024)]
Token = Annotated[str, Meta(min_length=1, max_length=1_048_576)]
StartType = Literal["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"]


def _api_name(field: str) -> str:
    """Return the API's name of a field: `StreamARN` for `stream_arn`."""
    return "".join("ARN" if word == "arn" else word.capitalize() for word in field.split("_"))


class Request(msgspec.Struct, rename=_api_name, frozen=True):
    """An input; unknown fields are ignored."""


class StreamRequest(Request, frozen=True):
    """An input that names a stream by name or ARN."""

    stream_name: Name | None = None
    stream_arn: Arn | None = None


class StreamModeDetails(Request, frozen=True):
    """The capacity mode; here it only decides whether AUTO record distribution is allowed."""

    stream_mode: Literal["PROVISIONED", "ON_DEMAND"]

"""Parses names and ARNs of streams, and the ARNs of their fan-out consumers.

A user gives a job its streams as names, as ARNs, or as NAME=ARN. The last form gives a name of its own to one of two
streams that have the same name in different regions or accounts. Records, state and metrics carry that name.
"""

from __future__ import annotations

import re

import msgspec

from .errors import ConfigurationError

_STREAM_ARN = re.compile(r"arn:[^:]+:kinesis:(?P<region>[^:]+):(?P<account>[^:]*):stream/[^/]+$")
_OWN_NAME = re.compile(r"(?P<name>[a-zA-Z0-9_.-]{1,128})=(?P<arn>arn:.+)")
_CONSUMER_ARN = re.compile(
    r"(?P<stream_arn>arn:[^:]+:kinesis:[^:]*:[^:]*:stream/(?P<stream>[^/:]+))/consumer/(?P<name>[^/:]+)(:\d+)?"
)


def arn_of(stream: str) -> str | None:
    """Return the ARN of a stream that was given as ARN or NAME=ARN, or None if it was given by its name."""
    named = _OWN_NAME.fullmatch(stream)
    if named is not None:
        return named["arn"]
    return stream if stream.startswith("arn:") else None


def has_own_name(stream: str) -> bool:
    """Return whether a stream was given as NAME=ARN."""
    return _OWN_NAME.fullmatch(stream) is not None


def stream_name(stream: str) -> str:
    """Return the name of a stream that was given by name, ARN or NAME=ARN.

    An ARN is not checked, because a publisher may read another service than Kinesis.
    """
    named = _OWN_NAME.fullmatch(stream)
    return stream.rpartition("/")[2] if named is None else named["name"]


def region_of_arn(arn: str) -> str:
    """Return the region in the ARN of a Kinesis stream. Raises: ConfigurationError if it is not such an ARN."""
    return _parts_of(arn)["region"]


def account_of_arn(arn: str) -> str:
    """Return the account id in the ARN of a Kinesis stream. Raises: ConfigurationError if it is not such an ARN."""
    return _parts_of(arn)["account"]


def _parts_of(arn: str) -> re.Match[str]:
    found = _STREAM_ARN.match(arn)
    if found is None:
        raise ConfigurationError("stream", arn, "a stream name, or arn:aws:kinesis:REGION:ACCOUNT:stream/NAME")
    return found


class ConsumerArn(msgspec.Struct, frozen=True):
    """A consumer's ARN: `<stream ARN>/consumer/<name>:<time of registration>`.

    The time distinguishes a consumer from an earlier one with the same name. Some servers leave it out.
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

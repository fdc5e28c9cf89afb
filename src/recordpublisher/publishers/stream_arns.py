"""Names and ARNs of streams, and the ARNs of their fan-out consumers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import ConfigurationError

_STREAM_ARN = re.compile(r"arn:[^:]+:kinesis:(?P<region>[^:]+):[^:]*:stream/[^/]+$")
_CONSUMER_ARN = re.compile(
    r"(?P<stream_arn>arn:[^:]+:kinesis:[^:]*:[^:]*:stream/(?P<stream>[^/:]+))/consumer/(?P<name>[^/:]+)(:\d+)?"
)


def is_arn(stream: str) -> bool:
    """Whether a stream was given as an ARN."""
    return stream.startswith("arn:")


def stream_name(stream: str) -> str:
    """The name of a stream that was given by name or ARN. An ARN is not checked: a publisher may read something else than Kinesis."""
    return stream.rpartition("/")[2]


def region_of_arn(arn: str) -> str:
    """The region in the ARN of a Kinesis stream. Raises: ConfigurationError when it is not the ARN of a Kinesis stream."""
    found = _STREAM_ARN.match(arn)
    if found is None:
        raise ConfigurationError("stream", arn, "a stream name, or arn:aws:kinesis:REGION:ACCOUNT:stream/NAME")
    return found["region"]


@dataclass(frozen=True, slots=True)
class ConsumerArn:
    """A consumer's ARN: `<stream ARN>/consumer/<name>:<time of registration>`.

    The time tells a consumer from an earlier one with the same name. Some servers leave it out.
    """

    text: str
    stream_arn: str
    stream: str
    name: str

    @classmethod
    def parse(cls, text: str) -> ConsumerArn | None:
        """None when the text is not the ARN of a stream consumer."""
        found = _CONSUMER_ARN.fullmatch(text)
        return None if found is None else cls(text, found["stream_arn"], found["stream"], found["name"])

    def __str__(self) -> str:
        return self.text

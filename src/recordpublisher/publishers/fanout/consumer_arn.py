"""ConsumerArn: what the ARN of a stream consumer says."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATTERN = re.compile(
    r"(?P<stream_arn>arn:[^:]+:kinesis:[^:]*:[^:]*:stream/(?P<stream>[^/:]+))/consumer/(?P<name>[^/:]+)(:\d+)?"
)


@dataclass(frozen=True, slots=True)
class ConsumerArn:
    """A consumer's ARN: `<stream ARN>/consumer/<name>:<time of registration>`.

    The time makes a consumer that was registered again another consumer (some servers leave it out).
    """

    text: str
    stream_arn: str
    stream: str
    name: str

    @classmethod
    def parse(cls, text: str) -> ConsumerArn | None:
        """None when the text is not the ARN of a stream consumer."""
        found = _PATTERN.fullmatch(text)
        return None if found is None else cls(text, found["stream_arn"], found["stream"], found["name"])

    def __str__(self) -> str:
        return self.text

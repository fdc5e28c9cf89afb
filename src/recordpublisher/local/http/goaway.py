"""Lets clients end a connection with GOAWAY while responses are under way, as the AWS SDK for JavaScript does with each subscription.

h2 takes the first GOAWAY as the end of the connection and sends nothing more, and hypercorn closes it: a response would end after the
64 KiB that a client accepts at first. In HTTP/2 open streams go on (RFC 9113, 6.8); the client closes the connection afterwards.
"""

from __future__ import annotations

from functools import cache
from typing import Any

NO_ERROR = 0


@cache
def ignore_goaway_without_error() -> None:
    """Let hypercorn's connections of this process ignore a GOAWAY that reports no error."""
    from hypercorn import protocol
    from hypercorn.protocol.h2 import H2Protocol
    from hyperframe.frame import GoAwayFrame

    class Connection(H2Protocol):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            receivers = self.connection._frame_dispatch_table
            end = receivers[GoAwayFrame]
            receivers[GoAwayFrame] = lambda frame: ([], []) if frame.error_code == NO_ERROR else end(frame)

    protocol.H2Protocol = Connection  # type: ignore[attr-defined]

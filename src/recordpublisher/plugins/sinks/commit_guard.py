"""CommitGuard: after a commit that did not end well, a transactional sink commits no more until it is opened again."""

from __future__ import annotations

from types import TracebackType

from recordpublisher.publishers.errors import SinkError


class CommitGuard:
    """Around every commit of one opening. What broke the first is raised again by the others: whether it came through is not known, and
    rows that wait could otherwise be written twice."""

    def __init__(self) -> None:
        self._broken: Exception | None = None

    def __enter__(self) -> None:
        if self._broken is not None:
            raise self._broken

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._broken = error
        elif error is not None:
            self._broken = SinkError("a commit was cut off and may or may not have come through: open the sink again")

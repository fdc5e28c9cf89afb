"""FailedCommitGuard: after a failed commit, a transactional sink commits nothing more until it is opened again."""

from types import TracebackType

from recordpublisher.publishers.errors import SinkError


class FailedCommitGuard:
    """A context manager around each commit of an open sink; after a failed commit every further one raises the same error.

    Whether the failed commit reached the storage is not known. Committing the waiting rows again could write them twice.
    """

    def __init__(self) -> None:
        self._error: Exception | None = None

    def __enter__(self) -> None:
        if self._error is not None:
            raise self._error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._error = error
        elif error is not None:
            self._error = SinkError("a commit was interrupted and may or may not have succeeded: open the sink again")

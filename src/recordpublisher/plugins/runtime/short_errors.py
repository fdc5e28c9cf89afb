"""`SHORT_ERRORS`: what a person must change is told in one sentence, without the calls and errors that led to it."""

import logging
from contextlib import ContextDecorator
from types import TracebackType

from recordpublisher.publishers.errors import ConfigurationError, FatalKinesisError, StreamNotFoundError

log = logging.getLogger("recordpublisher.errors")


class _ShortErrors(ContextDecorator):
    """Leaves cause and traceback out where they do not help: of wrong settings, missing credentials and streams, refused calls.

    They are logged as DEBUG.
    """

    def __enter__(self) -> None:
        """Nothing is done before the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, (ConfigurationError, StreamNotFoundError, FatalKinesisError)):
            log.debug("what led to the error", exc_info=error)
            raise error.with_traceback(None) from None


SHORT_ERRORS = _ShortErrors()
"""For the blocks and functions that users call."""

"""Reports an error that a person must fix in one sentence, without the calls and errors that led to it."""

import logging
from contextlib import ContextDecorator
from types import TracebackType

from recordpublisher.publishers.errors import (
    ConfigurationError,
    ConsumerError,
    DeserializationError,
    FatalKinesisError,
    FencedError,
    RetriesExhaustedError,
    SinkError,
    StateError,
    StreamNotFoundError,
)
from recordpublisher.publishers.user_code import cause_in_user_code, is_raised_in_user_code

log = logging.getLogger("recordpublisher.errors")
_TOLD = (
    ConfigurationError, ConsumerError, FatalKinesisError, FencedError, RetriesExhaustedError, StateError, StreamNotFoundError,
)  # fmt: skip
"""Errors whose message says everything, unless user code has a part in them."""
_WITH_CAUSE = (DeserializationError, SinkError)
"""Errors whose cause was raised by user code or a plugin."""


class _ShortErrors(ContextDecorator):
    """Removes our own calls from a traceback, and causes in which user code has no part. They are logged at level DEBUG.

    An error that a sink or plugin of another package has raised itself is not changed.
    """

    def __enter__(self) -> None:
        """Do nothing before the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, (*_TOLD, *_WITH_CAUSE)):
            return
        log.debug("what led to the error", exc_info=error)
        if not is_raised_in_user_code(error, or_installed=True):
            raise error.with_traceback(None) from (
                cause_in_user_code(error) if isinstance(error, _TOLD) else error.__cause__
            )


SHORT_ERRORS = _ShortErrors()
"""Used for the blocks and functions that users call."""

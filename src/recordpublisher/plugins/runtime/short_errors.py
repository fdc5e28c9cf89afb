"""`SHORT_ERRORS`: what a person must change is told in one sentence, without the calls and errors that led to it."""

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
"""Their message says all, unless user code has a part in them."""
_WITH_CAUSE = (DeserializationError, SinkError)
"""What user code, or a plugin, has raised."""


class _ShortErrors(ContextDecorator):
    """Leaves our own calls out of a traceback, and causes in which no code of the user has a part. They are logged as DEBUG.

    An error that a sink or plugin of others has raised itself stays as it is.
    """

    def __enter__(self) -> None:
        """Nothing is done before the block."""

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
"""For the blocks and functions that users call."""

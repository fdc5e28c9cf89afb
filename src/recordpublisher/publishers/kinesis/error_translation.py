"""Raises foreign errors as classes of `errors.py`, which `error_mapping.py` and `sdk/errors.py` find for them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import RecordPublisherError
from .error_mapping import BROKEN, NETWORK, error_of_transport


@contextmanager
def translate_errors(api: str) -> Iterator[None]:
    """Raise errors of the block as classes of `errors.py`, with their cause. Programming errors (such as TypeError) pass unchanged."""
    try:
        yield
    except RecordPublisherError:
        raise
    except Exception as error:
        ours = translate(api, error)
        if ours is None:
            raise
        raise ours from error


def translate(api: str, error: Exception) -> RecordPublisherError | None:
    """Return the error of `errors.py` for a foreign error, or None for a programming error."""
    if isinstance(error, (*NETWORK, *BROKEN)):
        return error_of_transport(api, error)
    if "botocore" not in sys.modules:  # without the SDK there is no error of it
        return None
    from .sdk.errors import translate_sdk_error

    return translate_sdk_error(api, error)

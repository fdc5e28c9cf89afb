"""Adds to an error of a plugin's or user's sink which sink has failed, and in which method."""

from collections.abc import Iterator
from contextlib import contextmanager

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.user_code import add_note, is_raised_in_user_code

from ..sink import Sink


@contextmanager
def naming_sink(sink: Sink, method: str, kind: str = "sink") -> Iterator[None]:
    """Add a note to an error of the block that is raised in the code of a sink. RecordPublisherErrors say what failed themselves.

    - `method`: the method of the sink that the block calls.
    - `kind`: what the sink is to the job.
    """
    try:
        yield
    except RecordPublisherError:
        raise
    except Exception as error:
        if is_raised_in_user_code(error, or_installed=True):
            add_note(error, f"the {kind} {type(sink).__name__} failed in `{method}`")
        raise


async def close_sink(sink: Sink) -> None:
    """Close a sink. Raises: the error of its `close`, with a note that names the sink."""
    with naming_sink(sink, "close"):
        await sink.close()

"""Calls methods of a sink, checks what they return, and adds the name of the sink and of the method to their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recordpublisher.publishers.errors import PluginError, StateError
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import counted, repr_of
from recordpublisher.publishers.user_code import PluginCall, add_note, close_or_leave, is_coroutine_function

from ..checkpoints.snapshot_format import checked_snapshot
from ..sink import Sink, State, Unfinished

_ASYNC_METHODS = frozenset(name for name, each in vars(Sink).items() if is_coroutine_function(each))


def naming_sink(sink: Sink, method: str, kind: str = "sink") -> PluginCall:
    """Return a context manager around a call of a sink's method. It adds the sink's name to an error of the call.

    If the method is async, a call that does not return is logged. `kind`: the words for the sink in the error, such as `dead-letter sink`.
    """
    return PluginCall(sink, method, note=_note(sink, method, kind), is_watched=method in _ASYNC_METHODS)


def naming_writes(sink: Sink) -> PluginCall:
    """Return a context manager around calls of `write`. It logs the sink's name if a call hangs.

    An error that is not an Exception, such as SystemExit, becomes a PluginError that names the sink. For other errors `tell_user_error`
    names the sink.
    """
    return PluginCall(sink, "write", note="")


def check_unchanged(sink: Sink, batch: RecordBatch, count: int) -> None:
    """Check that the sink's `write` has not changed the length of the batch, which had `count` records.

    Raises: PluginError if it has. A sink may have emptied the batch before it wrote the records, and the position would move past them.
    """
    if not batch.has_all(count):
        raise PluginError(
            f"`{type(sink).__name__}.write` has changed its batch of {counted(count, 'record')} of {batch.shard.key}: copy a column "
            "before you change it, as in `list(batch.values)`"
        )


def copied_state(state: State) -> dict[str, Any]:
    """Return a copy of a snapshot for a sink. The sink may change the copy, and the job stores the original."""
    return {**state, "shards": {key: {**each} for key, each in state["shards"].items()}}


def check_returned_state(sink: Sink, stored: Sequence[State] | None) -> None:
    """Check a sink whose `open` has returned no state. Its `stored_positions` must return no state either.

    - `stored`: the result of `stored_positions`.

    Raises: PluginError if `stored` has positions, because the job would ignore them and begin again at each start.
    """
    if stored:
        name = type(sink).__name__
        raise PluginError(
            f"`{name}.open` returned None although `{name}.stored_positions` returns stored state: return the same state from `open`"
        )


def states_of_sink(sink: Sink, method: str, returned: Any) -> list[State]:
    """Return what a sink's `open` or `flush` has returned as a list of snapshots.

    `open` may return None, a snapshot (a mapping) or a sequence of them, and `flush` None or a snapshot.

    Raises: PluginError if `returned` has another type; StateError if a snapshot cannot be read. Both errors name the sink and the method.
    """
    found = [] if returned is None else [returned] if isinstance(returned, Mapping) or method == "flush" else returned
    name = f"`{type(sink).__name__}.{method}`"
    if (
        isinstance(found, (str, bytes))
        or not isinstance(found, Sequence)
        or not all(isinstance(each, Mapping) for each in found)
    ):
        raise PluginError(f"{name} returned {repr_of(returned)}: return None, or the state that the sink has stored")
    try:
        for each in found:
            checked_snapshot(each)
    except StateError as error:
        raise StateError(f"{name} returned a state that cannot be used: {error}") from error
    return list(found)


async def close_sink(sink: Sink, seconds: float, kind: str = "sink") -> None:
    """Close a sink, but wait no longer than `seconds` for it.

    Raises: the error of the sink's `close`, with a note that names the sink.
    """
    await close_or_leave(sink, seconds, _note(sink, "close", kind))


def has_room(sink: Sink) -> bool:
    """Return whether the sink accepts a batch now.

    Raises: PluginError if the sink returns something else than True or False; the sink's own error, with a note that names the method.
    """
    try:
        found: Any = sink.has_room()
    except Exception as error:
        add_note(error, _note(sink, "has_room", "sink"))
        raise
    if not isinstance(found, bool):
        raise PluginError(f"`{type(sink).__name__}.has_room` returned {repr_of(found)}: return True or False")
    return found


def unfinished_of(sink: Sink) -> Unfinished | None:
    """Return the records that a `flush` of the sink would wait for, or None if the sink does not report them.

    Raises: PluginError if the sink returns something else; the sink's own error, with a note that names the method.
    """
    with naming_sink(sink, "unfinished"):
        found: Any = sink.unfinished()
    if found is not None and not isinstance(found, Unfinished):
        raise PluginError(
            f"`{type(sink).__name__}.unfinished` returned {repr_of(found)}: return an Unfinished, or None"
        )
    return found


def destination_of(sink: Sink) -> str:
    """Return a text that says where the sink writes.

    Raises: PluginError if the sink does not return a text; the sink's own error, with a note that names the method.
    """
    return _text_of(sink, "destination")


def handler_name_of(sink: Sink) -> str:
    """Return the name of the user's function that the sink calls, or "".

    Raises: PluginError if the sink does not return a text; the sink's own error, with a note that names the method.
    """
    return _text_of(sink, "handler_name")


def _text_of(sink: Sink, method: str) -> str:
    with naming_sink(sink, method):
        found: Any = getattr(sink, method)()
    if not isinstance(found, str):
        raise PluginError(f"`{type(sink).__name__}.{method}` returned {repr_of(found)}: return a str")
    return found


def _note(sink: Sink, method: str, kind: str) -> str:
    return f"the {kind} {type(sink).__name__} failed in `{method}`"

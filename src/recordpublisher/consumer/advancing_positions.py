"""AdvancingPositions checks that a publisher moves forward in its shard. Otherwise records would be read again, perhaps for ever (P1)."""

import logging
from collections.abc import Callable
from typing import Any

from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.positions import WHOLE_RECORD, SequenceNumber
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.user_code import describe_error

log = logging.getLogger("recordpublisher.consumer")
_UNORDERED: set[str] = set()
"""The publishers of which a log line has said that their positions have no order. A job has a reader for each shard."""


class AdvancingPositions:
    """Owns the last position of a publisher. It checks a batch's first and last record and the batch's position.

    - `order_of`: the factory's sort key. Sequence numbers that it cannot order must at least change.
    - `begins_after`: the position after which the publisher resumed, or None.
    """

    def __init__(self, publisher: str, order_of: Callable[[str], Any], begins_after: SequenceNumber | None) -> None:
        self._publisher = publisher
        self._order_of = order_of
        self._last = begins_after

    def check(self, batch: RecordBatch) -> None:
        """Check the next batch.

        Raises: PluginError if its records have no position or one before the last of them, or if it is not behind the last batch.
        """
        position, last = batch.read_position, self._last
        if position is None:
            if len(batch):
                raise PluginError(
                    f"{self._publisher} gave {counted(len(batch), 'record')} of {batch.shard.key} without read_position: it is the "
                    "position of the last of them, from which it is resumed"
                )
            return
        if position.continuation:
            return
        if last is not None and not len(batch) and self._is_behind(position, last):
            raise self._goes_back(batch, "no records", last)
        if last is not None and len(batch):
            first = batch.records[0]
            begins_at = SequenceNumber(first.sequence_number, first.sub_sequence_number)
            if any(found == last or self._is_behind(found, last) for found in (begins_at, position)):
                raise self._goes_back(batch, f"{counted(len(batch), 'record')} from {begins_at} on", last)
        if len(batch):
            end = batch.records[-1]
            ends_at = SequenceNumber(end.sequence_number, end.sub_sequence_number)
            if position != ends_at and self._is_behind(position, ends_at):
                raise PluginError(
                    f"{self._publisher} goes back in {batch.shard.key}: it gave {counted(len(batch), 'record')} up to {ends_at}, with the "
                    f"position {position}, and would give the last of them again. `read_position` is the position of the last record, or "
                    "one behind it"
                )
        self._last = position

    def _is_behind(self, found: SequenceNumber, last: SequenceNumber) -> bool:
        """Return whether a position is before the last one; False, with one log line for each publisher, if the plugin cannot tell."""
        try:
            return bool(self._place(found) < self._place(last))
        except Exception as error:
            if self._publisher not in _UNORDERED:
                _UNORDERED.add(self._publisher)
                log.warning(
                    "%s: `order_of` of the factory cannot order the sequence numbers '%s' and '%s' (%s), so it is not noticed if the "
                    "publisher goes back; implement `order_of`: its default is for whole numbers",
                    self._publisher,
                    last.sequence,
                    found.sequence,
                    describe_error(error),
                )
            return False

    def _place(self, position: SequenceNumber) -> tuple[Any, float]:
        part = position.sub_sequence
        return self._order_of(position.sequence), float("inf") if part == WHOLE_RECORD else part

    def _goes_back(self, batch: RecordBatch, given: str, last: SequenceNumber) -> PluginError:
        return PluginError(
            f"{self._publisher} goes back in {batch.shard.key}: after the position {last} it gave {given}, with the position "
            f"{batch.read_position}. `run` continues behind the position that the consumer returned, `create` makes a publisher that "
            "begins behind its starting position, and `order_of` orders positions"
        )

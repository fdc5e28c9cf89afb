"""Checks the shard ids and sequence numbers of responses where they are parsed: sinks make paths of them, and state keeps them."""

import re

from recordpublisher.publishers.shards import is_valid_name

_SEQUENCE_NUMBER = re.compile(r"[0-9]{1,129}")
_SHOWN = 80


def check_shard_ids(*given: str) -> None:
    """Raises: ValueError for text that is no shard id, TypeError for anything but text."""
    for each in given:
        if not is_valid_name(each):
            raise ValueError(f"not a shard id: {each[:_SHOWN]!r}; valid: letters, digits, _ . -, 128 at most")


def check_sequence_numbers(*given: str) -> None:
    """Raises: ValueError for text that is no sequence number.

    Of a response only the first and the last record are checked, since a check of each would cost a third of decoding it.
    """
    for each in given:
        if not _SEQUENCE_NUMBER.fullmatch(each):
            raise ValueError(f"not a sequence number: {each[:_SHOWN]!r}; valid: 1 to 129 digits")

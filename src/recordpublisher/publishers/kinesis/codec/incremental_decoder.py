"""Bodies of GetRecords decoded while they arrive, so that a body of 14 MiB is never held, nor decoded in one go."""

from __future__ import annotations

import msgspec

from recordpublisher.publishers.records import UserRecord

from .read_response import ReadBody, decode_read

MIN_PIECE_BYTES = 32 * 1024
"""Less than this is not worth a call of the decoder."""
_RECORDS_START = b'"Records":['
_MAX_PREFIX_BYTES = 64 * 1024  # iterator and children stand before the records
_SPLIT = b'},{"'
_SEARCH_WINDOW_BYTES = 16 * 1024
_RECORDS = msgspec.json.Decoder(list[UserRecord])
_COMMA, _OPEN, _CLOSE = b",[]"


class IncrementalReadDecoder:
    """Takes whole records off a body as they come: `body` is there once it is whole, the same that `decode_read` makes of it.

    A cut is made at `},{"` before a letter. In JSON that stands nowhere but between two objects: within a string the quotation mark
    would be escaped, and one that ends a string is not followed by a letter. A piece that is no list of records, and a body in
    another spelling (spaces between records), is held and decoded whole, so that what is refused is refused in the same words.
    """

    body: ReadBody | None = None

    def __init__(self) -> None:
        self._prefix = b""
        self._records: list[UserRecord] = []
        self._consumed = 0
        self._is_splittable = True

    def feed(self, data: memoryview, is_last: bool) -> int:
        """Take bytes off the front; the answer is how many. Raises: msgspec.DecodeError for a body that is none."""
        if is_last:
            self.body = self._decode_rest(data)
            return len(data)
        if len(data) < MIN_PIECE_BYTES or not self._is_splittable or data.readonly:
            return 0
        consumed = self._decode_piece(data)
        self._is_splittable = consumed > 0 or self._is_splittable
        self._consumed += consumed
        return consumed

    def _decode_piece(self, data: memoryview) -> int:
        """Decode up to the last cut. What is left then begins with the comma of the cut, which the next piece turns into its bracket."""
        first = 0 if self._prefix else self._records_start(data)
        split = _last_split(data)
        if not self._is_splittable or split <= first:
            return 0
        before, data[first], data[split] = data[first], _OPEN, _CLOSE
        try:
            self._records += _RECORDS.decode(data[first : split + 1])
        except msgspec.DecodeError:  # a cut behind the records, or no body of ours: told when it is whole
            self._is_splittable = False
            return 0
        finally:
            data[first], data[split] = before, _COMMA
        self._prefix = self._prefix or bytes(data[: first + 1])
        return split

    def _records_start(self, data: memoryview) -> int:
        """Where the list of records opens: it must be one of the outermost object."""
        start, found, _ = bytes(data[:_MAX_PREFIX_BYTES]).partition(_RECORDS_START)
        try:
            decode_read(start + found + b"]}")
        except msgspec.DecodeError:
            self._is_splittable = False
        return len(start + found) - 1

    def _decode_rest(self, rest: memoryview) -> ReadBody:
        body = decode_read(self._prefix + rest[1:] if self._prefix else rest)
        if self._prefix:
            body.Records = self._records + body.Records
        body.wire_bytes = self._consumed + len(rest)
        return body


def _last_split(data: memoryview) -> int:
    """Where the comma of the last split stands, -1 without one."""
    for window in (_SEARCH_WINDOW_BYTES, len(data)):
        text = bytes(data[-window:])
        end = len(text) - 1
        while (at := text.rfind(_SPLIT, 0, end)) >= 0:
            if text[at + len(_SPLIT) : at + len(_SPLIT) + 1].isalpha():
                return len(data) - len(text) + at + 1
            end = at + len(_SPLIT) - 1
    return -1

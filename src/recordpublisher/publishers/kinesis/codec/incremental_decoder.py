"""IncrementalReadDecoder decodes GetRecords bodies while they arrive, so that 14 MiB are never buffered or decoded at once."""

import re

import msgspec

from recordpublisher.publishers.records import UserRecord

from .large_payloads import decode_json
from .response_decoders import ReadBody, decode_read

MIN_PIECE_BYTES = 32 * 1024
"""The least bytes that are worth a call of the decoder."""
_RECORDS_START = re.compile(rb'"Records": ?\[')
_MAX_PREFIX_BYTES = 64 * 1024  # the iterator and the child shards may come before the records
_SPLIT = re.compile(rb'\}, ?\{"[A-Za-z]')
_BRACE = b"{"
_SEARCH_WINDOW_BYTES = 16 * 1024
_RECORDS = msgspec.json.Decoder(list[UserRecord])
_COMMA, _OPEN, _CLOSE, _SPACE = b",[] "


class IncrementalReadDecoder:
    """Decodes whole records as their bytes arrive. At the end `body` equals `decode_read` of the whole body.

    It splits the list of records at `},{"` followed by a letter, with or without a space after the comma. In JSON this
    occurs only between two objects: inside a string the quotation mark would be escaped, and after the end of a string
    no letter follows. A body that cannot be split (line ends between records, no list of records) is buffered and
    decoded as a whole, so that errors are the same in both cases.
    """

    body: ReadBody | None = None

    def __init__(self) -> None:
        self._prefix = b""
        self._records: list[UserRecord] = []
        self._consumed = 0
        self._is_splittable = True

    def feed(self, data: memoryview, is_last: bool) -> int:
        """Consume bytes from the front and return how many. Raises: msgspec.DecodeError if the body is malformed."""
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
        """Decode up to the last split. The rest begins with the comma of the split, which the next piece replaces by a bracket."""
        first = 0 if self._prefix else self._records_start(data)
        split = _last_split(data)
        if not self._is_splittable or split <= first:
            return 0
        before, data[first], data[split] = data[first], _OPEN, _CLOSE
        try:
            records = decode_json(_RECORDS, _same, data[first : split + 1])
        except msgspec.DecodeError:  # a split after the records, or a malformed body: decode the whole body later
            self._is_splittable = False
            return 0
        finally:
            data[first], data[split] = before, _COMMA
        self._records += records
        self._prefix = self._prefix or bytes(data[: first + 1])
        return split

    def _records_start(self, data: memoryview) -> int:
        """Return where the list of records begins. It must be a field of the outermost object."""
        text = bytes(data[:_MAX_PREFIX_BYTES])
        found = _RECORDS_START.search(text)
        end = len(text) if found is None else found.end()
        try:
            decode_read(text[:end] + b"]}")
        except msgspec.DecodeError:
            self._is_splittable = False
        return end - 1

    def _decode_rest(self, rest: memoryview) -> ReadBody:
        body = decode_read(self._prefix + rest[1:] if self._prefix else rest)
        if self._prefix:
            body.Records = self._records + body.Records
        body.wire_bytes = self._consumed + len(rest)
        return body


def _same(records: list[UserRecord]) -> list[UserRecord]:
    return records


def _last_split(data: memoryview) -> int:
    """Return the index of the comma of the last split, or -1 without a split."""
    for window in (_SEARCH_WINDOW_BYTES, len(data)):
        text = bytes(data[-window:])
        brace = len(text)
        while (brace := text.rfind(_BRACE, 3, brace)) >= 0:  # a single byte is found as fast as memory is read
            comma = brace - 1 - (text[brace - 1] == _SPACE)
            if _SPLIT.match(text, comma - 1) is not None:
                return len(data) - len(text) + comma
    return -1

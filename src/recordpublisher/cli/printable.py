"""`printable`: text from outside as it is printed and logged. No control character of a key, a payload or a name reaches a terminal."""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""All but tab and newline; what changes the direction of text or ends a line; half characters."""
_IN_JSON = re.compile(b"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xef\xbb\xbf")
"""The same in UTF-8, without what JSON never has as it is."""


class Printable(str):
    """Text without control characters from outside; it may have our colours."""

    __slots__ = ()


def printable(text: str) -> Printable:
    """The text with control characters as escapes: `\\x1b`, `\\u202e`."""
    return text if isinstance(text, Printable) else Printable(_CONTROLS.sub(_escaped, text))


def printable_line(text: str) -> Printable:
    """The same in one line."""
    return Printable(printable(text).replace("\n", "\\n"))


def printable_json(line: bytes) -> bytes:
    """JSON with such characters as JSON's own escapes: it means the same."""
    return _IN_JSON.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), line)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

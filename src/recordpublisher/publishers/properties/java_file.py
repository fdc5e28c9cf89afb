"""read_properties_file: Java properties files."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import ConfigurationError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def read_properties_file(path: Path) -> dict[str, str]:
    """The pairs of a Java properties file in UTF-8, later ones winning. Raises: ConfigurationError when it cannot be read."""
    try:
        return parse_properties(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(
            "file", str(path), "a readable Java properties file in UTF-8", reason=f"{reason}"
        ) from error


def parse_properties(content: str) -> dict[str, str]:
    """The pairs in a text, by the rules of java.util.Properties. Raises: ValueError for an escape that is invalid in Java, too."""
    return dict(_split_pair(line) for line in _logical_lines(content))


def _logical_lines(content: str) -> list[str]:
    """Lines without comments and blanks, continuations joined."""
    lines: list[str] = []
    pending: str | None = None
    for raw in _LINE_END.split(content):
        line = raw.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        if _ends_in_continuation(line):
            pending = (pending or "") + line[:-1]
            continue
        lines.append((pending or "") + line)
        pending = None
    return [*lines, pending] if pending else lines


def _ends_in_continuation(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_pair(line: str) -> tuple[str, str]:
    found = _PAIR.fullmatch(line)
    key, value = found.groups() if found else (line, "")
    return _unescape(key), _unescape(value)


def _unescape(escaped: str) -> str:
    """Resolve escapes. Java's text is UTF-16: a character beyond the first plane is written as two escapes."""
    units = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", _unescaped, escaped, flags=re.DOTALL)
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


def _unescaped(match: re.Match[str]) -> str:
    code: str = match.group(1)
    if code == "u":
        raise ValueError("malformed \\uxxxx escape")
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

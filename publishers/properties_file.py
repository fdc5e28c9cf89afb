"""Reading Java properties files."""

from __future__ import annotations

import re
from pathlib import Path

from .errors import ConfigurationError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties_file(path: Path) -> dict[str, str]:
    """The pairs of a Java properties file, later ones winning. Raises: ConfigurationError when it cannot be read."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            "file", str(path), "a readable Java properties file in UTF-8", reason=str(error)
        ) from error
    return dict(_split_pair(line) for line in _logical_lines(content))


def _logical_lines(content: str) -> list[str]:
    """Lines without comments and blanks, continuations joined."""
    lines: list[str] = []
    pending = ""
    for raw in content.splitlines():
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        if _ends_in_continuation(line):
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
    return [*lines, pending] if pending else lines


def _ends_in_continuation(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_pair(line: str) -> tuple[str, str]:
    found = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
    key, value = found.groups() if found else (line, "")
    return _unescape(key), _unescape(value)


def _unescape(escaped: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replaced, escaped)

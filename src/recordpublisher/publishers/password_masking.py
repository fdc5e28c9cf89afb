"""Masks passwords in URIs and connection strings, so that no error, log or repr shows them (C3)."""

import re

MASK = "******"
_NAMES = r"(?:pass|pwd|secret|token|sslkey|credential|private_?key|api_?key)"
_QUOTED = r"'(?:[^'\\]|\\.)*(?:'|$)|\"[^\"]*(?:\"|$)|\{[^}]*(?:\}|$)"
"""A value in quotes or braces. One that is not closed goes to the end: only invalid text is shown, and it may be that."""
_PATTERNS = (
    # scheme://user:password@host
    re.compile(r"(://[^:/?#\s]*:)[^\s]*(?=@)"),
    # the same without a scheme, or with its slashes missing
    re.compile(r"((?:^|\s)(?!arn:)(?://)?[^:/?#\s@=]*:)(?!/)[^\s]*(?=@)"),
    # anything else with a : before an @, unless that : follows a scheme or a drive, and a path comes after it
    re.compile(r"((?:^|\s)(?!['\"]?(?:arn:|file:|[a-z][\w+.-]*:/[^:\s]*@[^@\s]*(?:\s|$)))\S*:)\S*(?=@)", re.IGNORECASE),
    # a user and a password without a host; digits alone are a port
    re.compile(r"(://[^:/?#\s@\[]*:)(?!\d*(?:[/?#\s]|$))[^/?#\s@]+(?=[/?#\s]|$)"),
    # a parameter of a URI
    re.compile(rf"([?&][^=&\s]*{_NAMES}[^=&\s]*=)[^&\s]*", re.IGNORECASE),
    # key=value of a connection string
    re.compile(rf"((?:^|[;\s])[^=?&;\s]*{_NAMES}[^=?&;\s]*\s*=\s*)(?:{_QUOTED}|(?:\\.|[^\s])*)", re.IGNORECASE),
)


def mask_passwords(text: str) -> str:
    """The text with passwords of URIs and of `key=value` connection strings masked (C3)."""
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{MASK}", text)
    return text

"""Masks passwords in URIs and connection strings, so that no error, log or repr shows them (C3)."""

import re

MASK = "******"


def mask_passwords(text: str) -> str:
    """Return the text with passwords of URIs and of `key=value` connection strings masked (C3), in time linear in its length."""
    text = _WORD.sub(lambda word: _without_user_info(word.group()), text)
    for name, value in _PARAMETERS:
        text = _without_parameters(text, name, value)
    return text


def names_a_secret(name: str) -> bool:
    """Return whether a property or parameter is named like a secret, however its words are separated."""
    return _NAMES.search(_SEPARATORS.sub("", name.lower())) is not None


_NAMES = re.compile(r"secret|pass|pwd|token|sslkey|accesskey|apikey|privatekey|credential(?!sprovider)")
"""Words that occur in names of secrets, in lower case and without separators. A provider of credentials is not a secret."""
_SEPARATORS = re.compile(r"[\W_]+")
_WORD = re.compile(r"\S+")
_BEFORE_AN_AT = (
    # This finds scheme://user:password@host.
    re.compile(r"(://[^:/?#]*:).*(?=@)"),
    # This finds the same without a scheme, or with its slashes missing.
    re.compile(r"(^(?!arn:)(?://)?[^:/?#@=]*:)(?!/).*(?=@)"),
    # This finds anything else with a : before an @, unless that : follows a scheme or a drive, and a path comes after it.
    re.compile(r"(^(?!['\"]?(?:arn:|file:|[a-z][\w+.-]*:/[^:]*@$)).*:).*(?=@)", re.IGNORECASE),
)
# A user and a password without a host. Digits alone are a port.
_WITHOUT_A_HOST = re.compile(r"(://[^:/?#@\[]*:)(?!\d*(?:[/?#]|$))[^/?#@]+(?=[/?#]|$)")
_PARAMETERS = (
    # This finds a parameter of a URI.
    (re.compile(r"[?&]([^=&?\s]+)="), re.compile(r"()[^&\s]*")),
    # This finds key=value of a connection string. A value in quotes or braces that is not closed goes to the end; only invalid text has
    # one.
    (
        re.compile(r"(?:^|[;\s])([^=?&;\s]+)\s*="),
        re.compile(
            r"(\s*)(?:'(?:[^'\\]|\\.)*(?:'|$)|\"[^\"]*(?:\"|$)|\{[^}]*(?:\}|$)|(?:\\.|[^\s])*)",
            re.DOTALL,
        ),
    ),
)


def _without_user_info(word: str) -> str:
    # The part after the last @ has no password, and each pattern would scan it once for every possible start.
    end = word.rfind("@") + 1
    before = word[:end]
    for pattern in _BEFORE_AN_AT if end else ():
        before = pattern.sub(rf"\1{MASK}", before)
    return _WITHOUT_A_HOST.sub(rf"\1{MASK}", before + word[end:])


def _without_parameters(text: str, name: re.Pattern[str], value: re.Pattern[str]) -> str:
    parts, done, start = [], 0, 0
    while (found := name.search(text, start)) is not None:
        start = found.end()
        if names_a_secret(found[1]) and (hidden := value.match(text, start)) is not None:
            parts += [text[done : hidden.end(1)], MASK]
            done = start = hidden.end()
    return "".join([*parts, text[done:]])

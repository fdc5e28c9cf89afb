"""Makes texts that are safe to show: passwords are masked, and a `__str__` or `__repr__` that raises does no harm.

`mask_passwords` hides passwords in URIs and connection strings. No error, log line or repr may show them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

MASK = "******"


def mask_passwords(text: str) -> str:
    """Return the text with the passwords in URIs and in `key=value` connection strings masked. The time is linear in the text's length."""
    text = _WORD.sub(lambda word: _without_user_info(word.group()), text)
    for name, value in _PARAMETERS:
        text = _without_parameters(text, name, value)
    return text


def names_a_secret(name: str) -> bool:
    """Return whether the name of a property or parameter is that of a secret, such as `password`, `API-KEY` or `secret_key`.

    A declared property says so itself (`note_secrecy`).
    """
    lower = name.lower()
    if (noted := _secrecy.get(lower)) is not None:
        return noted
    return lower.startswith(tuple(_secret_prefixes)) or _NAMES.search(_SEPARATORS.sub("", lower)) is not None


def mask_quoted(text: str, values: Mapping[str, object]) -> str:
    """Return the text with each secret of `values` masked, wherever it is quoted. Values of up to three characters are left.

    A quoted secret may have escapes, like those of Python, JSON or a URL.
    """
    # A program may give a secret as a number.
    given = (
        str(each)
        for name, each in values.items()
        if (isinstance(each, str) or type(each) is int) and names_a_secret(name)
    )
    secrets = {each for each in given if len(each) > 3}
    # The longest first, because the end of a secret that begins with another one would be left.
    for form in sorted({form for secret in secrets for form in _quoted_forms(secret)}, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


def _quoted_forms(secret: str) -> set[str]:
    data = secret.encode(errors="surrogatepass")
    return {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(data, safe=""), repr(data)[2:-1]}


def note_secrecy(key: str, is_secret: bool, *, is_prefix: bool = False) -> None:
    """Remember whether the property `key` is a secret, whatever its name looks like. Called when the property is declared.

    If `is_prefix` is set, it stands for every key that begins with it. Then keys whose names look like secrets are secrets in any case.
    """
    if not is_prefix:
        _secrecy[key.lower()] = is_secret
    elif is_secret:
        _secret_prefixes.add(key.lower())


_secrecy: dict[str, bool] = {}
"""Whether each declared property is a secret, by its keys in lower case."""
_secret_prefixes: set[str] = set()
"""The declared prefixes of secrets, in lower case."""
_NAMES = re.compile(r"secret|pass|pwd|token|sslkey|accesskey|apikey|privatekey|credential(?!sprovider)")
"""Parts of names of secrets, in lower case and without separators. The name of a credentials provider is not a secret."""
_SEPARATORS = re.compile(r"[\W_]+")
_WORD = re.compile(r"\S+")
_BEFORE_AN_AT = (
    # scheme://user:PASSWORD@host
    re.compile(r"(://[^:/?#]*:).*(?=@)"),
    # user:PASSWORD@host, with or without slashes before it; not the ARN arn:...
    re.compile(r"(^(?!arn:)(?://)?[^:/?#@=]*:)(?!/).*(?=@)"),
    # Any other text with a : before an @, such as user:pass:WORD@host. But not file:... and arn:..., and not a path after a scheme or a
    # drive, such as C:/folder/a@b or s3:/bucket/a@b.
    re.compile(r"(^(?!['\"]?(?:arn:|file:|[a-z][\w+.-]*:/[^:]*@$)).*:).*(?=@)", re.IGNORECASE),
)
# scheme://user:PASSWORD without a host. Digits alone are not masked, because they are a port.
_WITHOUT_A_HOST = re.compile(r"(://[^:/?#@\[]*:)(?!\d*(?:[/?#]|$))[^/?#@]+(?=[/?#]|$)")
_PARAMETERS = (
    # ?name=VALUE and &name=VALUE, the parameters of a URI.
    (re.compile(r"[?&]([^=&?\s]+)="), re.compile(r"()[^&\s]*")),
    # name=VALUE in a connection string. If quotes or braces are not closed, which only invalid text has, the value extends to the end.
    (
        re.compile(r"(?:^|[;\s])([^=?&;\s]+)\s*="),
        re.compile(
            r"(\s*)(?:'(?:[^'\\]|\\.)*(?:'|$)|\"[^\"]*(?:\"|$)|\{[^}]*(?:\}|$)|(?:\\.|[^\s])*)",
            re.DOTALL,
        ),
    ),
)


def _without_user_info(word: str) -> str:
    # The patterns search only up to the last @, because there is no password after it. Otherwise each would scan that part once for every
    # possible start.
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


# Values and errors of user code, whose `__str__` and `__repr__` may raise.


def text_of(value: object) -> str:
    """Return the value as text that can be encoded as UTF-8, even if its `__str__` fails."""
    try:
        return writable(str(value))
    except Exception as failure:
        return f"(its __str__ raised {type(failure).__name__})"


def writable(text: str) -> str:
    """Return the text with each lone surrogate replaced by an escape, because UTF-8 cannot encode it.

    Python's `json` may decode such characters from a payload, and errors of user code may show them.
    """
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def repr_of(value: object, most: int | None = 100) -> str:
    """Return the value's `repr`, even if its `__repr__` fails. It is cut to `most` characters, or not at all if `most` is None."""
    try:
        return writable(repr(value))[:most]
    except Exception as failure:
        return f"an object of {type(value).__name__} (its __repr__ raised {type(failure).__name__})"


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an error, or none if they cannot be read."""
    try:
        return [text_of(note) for note in getattr(error, "__notes__", ())]
    except Exception:
        return []


def with_notes(error: BaseException) -> str:
    """Return the message of an error with its notes. If the error is not of this library, the message begins with its class."""
    text, kind = text_of(error), type(error)
    if not kind.__module__.startswith("recordpublisher."):
        text = f"{kind.__name__}: {text}" if text else kind.__name__
    return "; ".join([text, *notes_of(error)])


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, as `1 shard` or `2 shards`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def few_of(names: Sequence[str], most: int = 5) -> str:
    """Return names joined by commas. If there are more than `most`, only the first ones are shown, with the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

"""The tags of one stream, consumer or queue."""

import re
from collections.abc import Iterable, Mapping

from ..api_errors import invalid_argument

MAX_TAGS = 50
RESERVED_PREFIX = "aws:"
_REFUSED = re.compile("[^\u00c0-\u1fff\u2c00-\ud7ffA-Za-z0-9_./=+ @-]")
"""kinesalite recorded these characters from AWS: % is refused although the message allows it, and so are tabs and line ends."""


def _check_characters(texts: Iterable[str]) -> None:
    if any(_REFUSED.search(text) for text in texts):
        allowed = "Unicode letters, digits, white space, _ . / = + - % @."
        raise invalid_argument(f"Some tags contain invalid characters. Valid characters: {allowed}")


class TagSet:
    """Owns the tags of one resource, at most 50. Keys that begin with `aws:` are reserved for the service.

    Raises: the errors of `add`, for the initial tags.
    """

    def __init__(self, tags: Mapping[str, str] | None = None) -> None:
        self._values: dict[str, str] = {}
        self.add(tags or {})

    def add(self, tags: Mapping[str, str]) -> None:
        """Add all of the tags, or none.

        Raises: InvalidArgumentException for a reserved key, for characters that are not allowed, and for too many tags.
        """
        _check_characters((*tags.keys(), *tags.values()))
        reserved = next((key for key in tags if key.lower().startswith(RESERVED_PREFIX)), None)
        if reserved is not None:
            raise invalid_argument(f"Tag key {reserved} begins with {RESERVED_PREFIX}, which is reserved.")
        count = len(self._values.keys() | tags.keys())
        if count > MAX_TAGS:
            raise invalid_argument(f"A resource has at most {MAX_TAGS} tags; it would have {count}.")
        self._values.update(tags)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove tags, and ignore those that do not exist. Raises: InvalidArgumentException for characters that are not allowed."""
        keys = tuple(keys)
        _check_characters(keys)
        for key in keys:
            self._values.pop(key, None)

    def values(self) -> dict[str, str]:
        """Return the tags by key."""
        return dict(self._values)

    def describe(self, after: str = "") -> list[dict[str, str]]:
        """Return the tags past a key, by key, as the API shows them."""
        return [{"Key": key, "Value": self._values[key]} for key in sorted(self._values) if key > after]

"""Reads columns as Spark and databases write them: `id BIGINT, address STRUCT<country: STRING>, tags ARRAY<STRING>`.

The grammar has four rules, so it has a parser here: sqlglot reads the whole of SQL, and its types would need the same table of names.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from .model import PLAIN, SchemaField, decimal_type, list_of, map_of, object_type

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>`(?:[^`]|``)+`|"(?:[^"]|"")+"|'(?:[^'\\]|\\.)*')|(?P<word>\w+)|(?P<sign>[<>(),:\[\]]))"""
)
_OTHER_NAMES = {
    "BOOL": "BOOLEAN",
    **dict.fromkeys(("BYTE", "INT1"), "TINYINT"),
    **dict.fromkeys(("SHORT", "INT2"), "SMALLINT"),
    **dict.fromkeys(("INTEGER", "INT4"), "INT"),
    **dict.fromkeys(("LONG", "INT8"), "BIGINT"),
    **dict.fromkeys(("REAL", "FLOAT4"), "FLOAT"),
    **dict.fromkeys(("FLOAT8", "DOUBLE PRECISION"), "DOUBLE"),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR", "CHARACTER", "CHARACTER VARYING"), "STRING"),
    **dict.fromkeys(("BYTEA", "BLOB", "VARBINARY"), "BINARY"),
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMP_LTZ", "TIMESTAMP WITH TIME ZONE"), "TIMESTAMP"),
}
_WORDS_AFTER = {"DOUBLE": ("PRECISION",), "CHARACTER": ("VARYING",), "TIMESTAMP": ("WITH", "TIME", "ZONE")}
_DECIMALS = ("DECIMAL", "NUMERIC", "DEC")
VALID_TYPES = f"{', '.join(PLAIN)}, DECIMAL(p, s), ARRAY<..>, MAP<.., ..>, STRUCT<name: type, ..>"
MOST_LEVELS = 64


def parse_columns(text: str) -> Any:
    """Return the type of rows with these columns. Raises: ValueError that says where the text is wrong."""
    parser = _Parser(text)
    fields = parser.fields("")
    return object_type(fields)


class _Parser:
    """Owns the place in the text."""

    def __init__(self, text: str) -> None:
        self._text, self._place, self._levels = text, 0, 0

    def fields(self, end: str) -> list[SchemaField]:
        """Columns with commas between, up to the sign `end`; empty: up to the end of the text."""
        fields = [self._field()]
        while self._takes(","):
            fields.append(self._field())
        self._expect(end)
        return fields

    def _field(self) -> SchemaField:
        quoted, word, _ = found = self._next()
        if not (quoted or word) or quoted.startswith("'"):
            raise self._error("a name is expected", found)
        name = quoted[1:-1].replace(quoted[0] * 2, quoted[0]) if quoted else word
        self._takes(":")
        of = self._type()
        is_required = self._takes("NOT", "NULL")
        if not is_required:
            self._takes("NULL")
        if self._takes("COMMENT"):
            self._next()
        return SchemaField(name, of, is_required)

    def _type(self) -> Any:
        self._levels += 1
        found = self._next()
        name = found[1].upper()
        if not name or self._levels > MOST_LEVELS:
            raise self._error(
                "a type is expected" if not name else f"types are nested more than {MOST_LEVELS} deep", found
            )
        if name in _WORDS_AFTER and self._takes(*_WORDS_AFTER[name]):
            name = " ".join([name, *_WORDS_AFTER[name]])
        made = self._nested(name) if name in ("ARRAY", "MAP", "STRUCT") else self._plain(name, found)
        while self._takes("["):
            self._expect("]")
            made = list_of(made)  # TEXT[], as PostgreSQL writes it
        self._levels -= 1
        return made

    def _nested(self, name: str) -> Any:
        self._expect("<")
        if name == "STRUCT":
            return object_type(self.fields(">"), "struct")
        made = self._type()
        if name == "MAP":
            self._expect(",")
            made = map_of(made, self._type())
        else:
            made = list_of(made)
        self._expect(">")
        return made

    def _plain(self, name: str, found: tuple[str, str, str]) -> Any:
        numbers: list[int] = []
        if self._takes("("):
            while not self._takes(")"):
                numbers.append(self._number())
                self._takes(",")
        known = _OTHER_NAMES.get(name, name)
        if name in _DECIMALS and 1 <= len(numbers) <= 2:
            return decimal_type(numbers[0], numbers[1] if len(numbers) > 1 else 0)
        if name in _DECIMALS:
            raise self._error("a decimal needs its digits, as in DECIMAL(12, 2)", found)
        if known not in PLAIN or (numbers and known not in ("STRING", "BINARY")):
            raise self._error(f"the types are {VALID_TYPES}", found)
        if known == "STRING" and numbers:  # VARCHAR(10)
            return Annotated[str, msgspec.Meta(max_length=numbers[0])]
        return PLAIN[known]

    def _number(self) -> int:
        found = self._next()
        if not found[1].isdecimal():
            raise self._error("a number is expected", found)
        return int(found[1])

    def _takes(self, *words: str) -> bool:
        """Whether these words or signs are next; then they are taken."""
        start = self._place
        for word in words:
            if word not in [part.upper() for part in self._next()[1:]]:
                self._place = start
                return False
        return True

    def _expect(self, sign: str) -> None:
        found = self._next()
        if "".join(found) != sign:
            raise self._error(f"{sign!r} is expected" if sign else "a comma or the end is expected", found)

    def _next(self) -> tuple[str, str, str]:
        """The next token, as what is quoted, a word or a sign; at the end three empty texts."""
        found = _TOKEN.match(self._text, self._place)
        if found is None and self._text[self._place :].strip():
            raise ValueError(f"{self._text[self._place :].strip()[:20]!r} is not a part of columns")
        self._place = len(self._text) if found is None else found.end()
        return ("", "", "") if found is None else (found["quoted"] or "", found["word"] or "", found["sign"] or "")

    def _error(self, expected: str, found: tuple[str, str, str]) -> ValueError:
        before = self._text[: self._place].strip()[-40:]
        what = "".join(found)
        return ValueError(
            f"{expected}, and {what!r} found in '{before}'" if what else f"{expected} at the end of '{before}'"
        )

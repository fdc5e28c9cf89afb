"""Parses columns as Spark and databases write them: `id BIGINT, address STRUCT<country: STRING>, tags ARRAY<STRING>`.

The parser is our own because the grammar has only four rules. sqlglot parses the whole of SQL, and would need the same table of names.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from .model import PLAIN, SchemaField, decimal_type, list_of, map_of, object_type

_TOKEN = re.compile(r"""`(?:[^`]|``)+`|"(?:[^"]|"")+"|'(?:[^'\\]|\\.)*'|\w+|\S""")
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
    """Return the type of rows with these columns. Raises: ValueError if the text is wrong; it says where."""
    return object_type(_Parser(text).fields(""))


class _Parser:
    """Parses one text. It owns the current place in the text."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKEN.findall(text), ""]
        self._place, self._levels = 0, 0

    def fields(self, end: str) -> list[SchemaField]:
        """Return the comma-separated columns up to the sign `end`, or up to the end of the text if `end` is empty."""
        fields = [self._field()]
        while self._takes(","):
            fields.append(self._field())
        self._expect(end, "a comma or the end")
        return fields

    def _field(self) -> SchemaField:
        name = self._next()
        if len(name) > 2 and name[0] in '`"':
            name = name[1:-1].replace(name[0] * 2, name[0])
        elif not name[:1].isidentifier() and not name.isalnum():
            raise self._error("a name is expected")
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
        if self._levels > MOST_LEVELS:
            raise self._error(f"types are nested more than {MOST_LEVELS} deep")
        name = self._next().upper()
        if name in _WORDS_AFTER and self._takes(*_WORDS_AFTER[name]):
            name = " ".join([name, *_WORDS_AFTER[name]])
        made = self._nested(name) if name in ("ARRAY", "MAP", "STRUCT") else self._plain(name)
        while self._takes("[", "]"):
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

    def _plain(self, name: str) -> Any:
        known = _OTHER_NAMES.get(name, name)
        if known not in PLAIN and name not in _DECIMALS:
            raise self._error(f"the types are {VALID_TYPES}" if name else "a type is expected")
        numbers: list[int] = []
        if (name in _DECIMALS or known in ("STRING", "BINARY")) and self._takes("("):
            numbers.append(self._number())
            if name in _DECIMALS and self._takes(","):
                numbers.append(self._number())
            self._expect(")")
        if name in _DECIMALS:
            if not numbers:
                raise self._error("a decimal needs its digits, as in DECIMAL(12, 2)")
            return decimal_type(numbers[0], numbers[1] if len(numbers) > 1 else 0)
        if known == "STRING" and numbers:  # VARCHAR(10)
            return Annotated[str, msgspec.Meta(max_length=numbers[0])]
        return PLAIN[known]

    def _number(self) -> int:
        if not (token := self._next()).isdecimal():
            raise self._error("a number is expected")
        return int(token)

    def _takes(self, *words: str) -> bool:
        """Return whether these words or signs are next, and skip them if they are."""
        are_next = tuple(map(str.upper, self._tokens[self._place : self._place + len(words)])) == words
        self._place += len(words) if are_next else 0
        return are_next

    def _expect(self, sign: str, in_words: str = "") -> None:
        if not self._takes(sign):
            self._next()
            raise self._error(f"{in_words or repr(sign)} is expected")

    def _next(self) -> str:
        """Return the next token and move behind it; an empty text at the end."""
        self._place += 1
        return self._tokens[min(self._place, len(self._tokens)) - 1]

    def _error(self, expected: str) -> ValueError:
        """Return an error that says that `expected` should stand in place of the last token."""
        before, found = (
            " ".join(self._tokens[: self._place - 1][-8:]),
            self._tokens[min(self._place, len(self._tokens)) - 1],
        )
        return ValueError(f"{expected} after '{before}', and {repr(found) if found else 'the end'} found")

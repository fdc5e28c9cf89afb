"""Builds the Python types of rows, from a list of columns as in SQL, or from a JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from keyword import iskeyword
from types import GenericAlias
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec

from recordpublisher.consumer.typed_values import COLUMN_TYPE_KEY, decimal_digits, exact_decimal_converter

ROW_NAME = "row of the schema"
"""The name of the type in messages about values that do not fit it."""


def parse_columns(text: str) -> Any:
    """Return the type of rows with the columns of a text, such as `id BIGINT, address STRUCT<country: STRING>, tags ARRAY<STRING>`.

    Raises: ValueError, naming the place, if the text is wrong.
    """
    return object_type(_Parser(text).fields(""))


def _whole(bits: int, column: str | None = None) -> Any:
    least, extra = -(2 ** (bits - 1)), column and {COLUMN_TYPE_KEY: column}
    return Annotated[int, msgspec.Meta(ge=least, le=-least - 1, extra=extra or None)]


PLAIN: dict[str, Any] = {
    "BOOLEAN": bool,
    "TINYINT": _whole(8, "TINYINT"),
    "SMALLINT": _whole(16, "SMALLINT"),
    "INT": _whole(32, "INT"),
    "BIGINT": _whole(64),
    "FLOAT": Annotated[float, msgspec.Meta(extra={COLUMN_TYPE_KEY: "FLOAT"})],
    "DOUBLE": float,
    "STRING": str,
    "BINARY": bytes,
    "DATE": date,
    "TIMESTAMP": datetime,
    "TIME": time,
    "UUID": UUID,
}
"""The types without parameters, by their names in Spark. Spark has no TIME and UUID; these are named as in databases."""
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
_TOKEN = re.compile(r"""`(?:[^`]|``)+`|"(?:[^"]|"")+"|'(?:[^'\\]|\\.)*'|\w+|\S""")
MOST_TYPE_LEVELS = 64
_PLAIN: dict[str, Any] = {"boolean": bool, "integer": PLAIN["BIGINT"], "number": float, "string": str}
_FORMATS: dict[str, Any] = {"date-time": datetime, "date": date, "time": time, "uuid": UUID}
_CHOICES = ("anyOf", "oneOf")
_MOST_SCHEMA_LEVELS = 64


class _Parser:
    """Parses a list of columns as in SQL (see `parse_columns`).

    It is written by hand because the grammar has only four rules. sqlglot would need the same table of types.
    """

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKEN.findall(text), ""]
        self._place, self._levels = 0, 0

    def fields(self, end: str) -> list[SchemaField]:
        """Return the comma-separated columns up to the token `end`, or up to the end of the text if `end` is empty."""
        fields = [self._field()]
        while self._skip_if_next(","):
            fields.append(self._field())
        self._expect(end, "a comma or the end")
        return fields

    def _field(self) -> SchemaField:
        name = self._next()
        if len(name) > 2 and name[0] in '`"':
            name = name[1:-1].replace(name[0] * 2, name[0])
        elif not name[:1].isidentifier() and not name.isalnum():
            raise self._error("a name is expected")
        self._skip_if_next(":")
        of = self._type()
        is_required = self._skip_if_next("NOT", "NULL")
        if not is_required:
            self._skip_if_next("NULL")
        if self._skip_if_next("COMMENT"):
            self._next()
        return SchemaField(name, of, is_required)

    def _type(self) -> Any:
        self._levels += 1
        if self._levels > MOST_TYPE_LEVELS:  # Deeper types would exceed Python's stack.
            raise self._error(f"types are nested more than {MOST_TYPE_LEVELS} deep")
        name = self._next().upper()
        if name in _WORDS_AFTER and self._skip_if_next(*_WORDS_AFTER[name]):
            name = " ".join([name, *_WORDS_AFTER[name]])
        made = self._nested(name) if name in ("ARRAY", "MAP", "STRUCT") else self._plain(name)
        while self._skip_if_next("[", "]"):
            made = list_of(made)  # PostgreSQL writes a list as TEXT[].
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
            raise self._error(f"one of the types {VALID_TYPES} is expected" if name else "a type is expected")
        numbers: list[int] = []
        if (name in _DECIMALS or known in ("STRING", "BINARY")) and self._skip_if_next("("):
            numbers.append(self._number())
            if name in _DECIMALS and self._skip_if_next(","):
                numbers.append(self._number())
            self._expect(")")
        if name in _DECIMALS:
            if not numbers:
                self._next()
                raise self._error("digits of a decimal, as in DECIMAL(12, 2), are expected")
            return decimal_annotation(numbers[0], numbers[1] if len(numbers) > 1 else 0)
        if known == "STRING" and numbers:  # For example VARCHAR(10).
            return Annotated[str, msgspec.Meta(max_length=numbers[0])]
        return PLAIN[known]

    def _number(self) -> int:
        if not (token := self._next()).isdecimal():
            raise self._error("a number is expected")
        return int(token)

    def _skip_if_next(self, *words: str) -> bool:
        are_next = tuple(map(str.upper, self._tokens[self._place : self._place + len(words)])) == words
        self._place += len(words) if are_next else 0
        return are_next

    def _expect(self, sign: str, in_words: str = "") -> None:
        if not self._skip_if_next(sign):
            self._next()
            raise self._error(f"{in_words or repr(sign)} is expected")

    def _next(self) -> str:
        """Go past the next token, and return it. Return an empty text at the end."""
        self._place += 1
        return self._tokens[min(self._place, len(self._tokens)) - 1]

    def _error(self, expected: str) -> ValueError:
        """Return an error that says what was expected instead of the last token."""
        before, found = (
            " ".join(self._tokens[: self._place - 1][-8:]),
            self._tokens[min(self._place, len(self._tokens)) - 1],
        )
        place = f"after '{before}'" if before else "at the beginning"
        return ValueError(f"{expected} {place}, but {f'{found!r} was found' if found else 'the text ends there'}")


def type_of_json_schema(schema: Any) -> Any:
    """Return the type of rows of a JSON Schema. Only the keywords that define columns are read.

    Raises: ValueError if the schema does not describe an object, or has a part without a column.
    """
    of = _JsonSchemaTypes(schema).type_of(schema, "$", 0)
    if not (isinstance(of, type) and issubclass(of, msgspec.Struct)):
        raise ValueError("the schema of a row must describe an object with properties")  # noqa: TRY004 - the type is in a file
    return of


class _JsonSchemaTypes:
    """Turns JSON Schemas into types of rows. It has the whole document, because `$ref` refers to other parts of the document."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def type_of(self, schema: Any, place: str, level: int) -> Any:
        """Return the type for a schema.

        `place`: the path of the field, such as `$.address.country`. `level`: how many schemas contain this one.

        Raises: ValueError if no column exists for the schema.
        """
        if not isinstance(schema, Mapping) or level > _MOST_SCHEMA_LEVELS:
            raise ValueError(f"{place} has no type, or is recursive (contains itself), so no column exists for it")
        if "$ref" in schema:  # The level limits references that lead back to themselves.
            return self.type_of(self._part(schema["$ref"]), place, level + 1)
        kind, choices = schema.get("type"), next((schema[word] for word in _CHOICES if word in schema), None)
        if isinstance(kind, list):
            choices = [{**schema, "type": each} for each in kind]
        if choices:
            return self._only(choices, place, level)
        if kind == "array":
            return list_of(self.type_of(schema.get("items"), f"{place}[]", level + 1))
        return self._object(schema, place, level) if kind == "object" else self._plain(kind, schema, place)

    def _plain(self, kind: Any, schema: Mapping[str, Any], place: str) -> Any:
        if kind == "string" or (kind is None and _are_texts(schema.get("enum"))):
            return _text(schema)
        if kind not in _PLAIN:
            raise ValueError(f"{place} has the type {kind!r}, which no type of column can hold")
        return _PLAIN[kind]

    def _object(self, schema: Mapping[str, Any], place: str, level: int) -> Any:
        required = schema.get("required", ())
        fields = [
            SchemaField(name, self.type_of(field, f"{place}.{name}", level + 1), name in required)
            for name, field in schema.get("properties", {}).items()
        ]
        if fields:
            return object_type(fields) if place == "$" else object_type(fields, place.rpartition(".")[2])
        return map_of(str, self.type_of(schema.get("additionalProperties"), f"{place}[]", level + 1))

    def _only(self, choices: list[Any], place: str, level: int) -> Any:
        kinds = [choice for choice in choices if choice.get("type") != "null"]
        if len(kinds) != 1:
            raise ValueError(f"{place} may have several types, which no column can hold")
        of = self.type_of(kinds[0], place, level + 1)
        return of | None if len(kinds) < len(choices) else of

    def _part(self, reference: str) -> Any:
        part = self._document
        for name in reference.removeprefix("#/").split("/"):
            if not isinstance(part, Mapping) or name not in part or not reference.startswith("#/"):
                raise ValueError(f"the reference {reference} names nothing in this file")
            part = part[name]
        return part


def _text(schema: Mapping[str, Any]) -> Any:
    if schema.get("contentEncoding") == "base64":
        return bytes
    values: Any = schema.get("enum")
    return Literal[tuple(values)] if _are_texts(values) else _FORMATS.get(schema.get("format", ""), str)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)


def object_type(fields: Sequence[SchemaField], name: str = ROW_NAME) -> type[msgspec.Struct]:
    """Return a Struct with these fields. A field that is not required may be null, or missing.

    A field whose name is not valid in Python becomes an attribute `field_1`, `field_2` and so on, numbered by its place.

    Raises: ValueError if there is no field, or if two fields have the same name.
    """
    if not fields:
        raise ValueError("an object without fields cannot be a column")
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise ValueError(f"the field {field.name!r} is declared twice")
        seen.add(field.name)
    names = {field.name: _attribute(field.name, place, seen) for place, field in enumerate(fields, 1)}
    # A field without a value must be valid, because producers leave fields out.
    declared: list[Any] = [
        (names[field.name], field.type) if field.is_required else (names[field.name], field.type | None, None)
        for field in fields
    ]
    checked = {names[field.name]: _digits_of(field.type) for field in fields if _digits_of(field.type)}
    renamed = {attribute: name for name, attribute in names.items() if attribute != name}
    namespace = {"__post_init__": _check_of(checked)} if checked else None
    return msgspec.defstruct(name, declared, kw_only=True, rename=renamed or None, namespace=namespace)


class SchemaField(NamedTuple):
    """One field of an object: its name in JSON, its type in Python, and whether the field must have a value."""

    name: str
    type: Any
    is_required: bool = False


def decimal_annotation(precision: int, scale: int) -> Any:
    """Return the type of DECIMAL(precision, scale). Raises: ValueError if no table can have such a column."""
    column = f"DECIMAL({precision}, {scale})"
    decimal_digits(column)
    return Annotated[Decimal, msgspec.Meta(extra={COLUMN_TYPE_KEY: column})]


def list_of(item: Any) -> Any:
    """Return the type of lists. Items may be null."""
    return GenericAlias(list, (item | None,))


def map_of(key: Any, item: Any) -> Any:
    """Return the type of maps. Values may be null."""
    return GenericAlias(dict, (key, item | None))


def _attribute(name: str, place: int, names: set[str]) -> str:
    if name.isidentifier() and not iskeyword(name) and not name.startswith("__"):
        return name
    attribute = f"field_{place}"
    while attribute in names:
        attribute += "_"
    return attribute


def _digits_of(of: Any) -> tuple[int, int] | None:
    marks = [mark for mark in getattr(of, "__metadata__", ()) if isinstance(mark, msgspec.Meta)]
    return decimal_digits((marks[0].extra or {}).get(COLUMN_TYPE_KEY, "")) if marks else None


def _check_of(digits: dict[str, Any]) -> Callable[[Any], None]:
    """Return a function that raises ValueError if a decimal of a row has too many digits for its field.

    - `digits`: precision and scale of each field, by name.

    Without this check, PostgreSQL would round a number that does not fit, and a sink of JSON lines would write it unchanged.
    """

    exact = {name: (of, exact_decimal_converter(*of)) for name, of in digits.items()}

    def check(row: Any) -> None:
        for name, (of, convert) in exact.items():
            if (value := getattr(row, name)) is not None:
                try:
                    convert(value)
                except ValueError as error:
                    raise ValueError(f"the field '{name}' is DECIMAL{of}, and {error}") from error

    return check

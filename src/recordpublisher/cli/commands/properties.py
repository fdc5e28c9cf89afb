"""`recordpublisher properties`: every property, as text or JSON."""

import contextlib
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.host.registry import Registry
from recordpublisher.publishers.errors import PluginError, RecordPublisherError
from recordpublisher.publishers.properties.declaration import Property, declared_properties, unit_after

from ..execution import print_note
from ..output import SafeText, echo, joined, json_text, styled


def properties(
    word: Annotated[
        str | None,
        typer.Argument(metavar="WORD", help="List only properties with this word in their key, group or meaning."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each property.")] = False,
) -> None:
    """List every property, including properties of installed plugins: key, default, valid values, meaning.

    If a plugin cannot be imported, its properties are missing in the list, and a line on stderr says why.

    Example: recordpublisher properties watermark
    """
    registry = load_registry()
    found = [declared for declared in all_properties(registry) if word is None or _contains(declared, word.lower())]
    for message in (missing := registry.import_all()):
        print_note(f"properties of this plugin are not listed: {' '.join(message.split())}")
    if not found:
        exception = ", except perhaps one of a plugin that was not imported" if missing else ""
        raise RecordPublisherError(f"no property has {word!r} in its key, group or meaning{exception}")
    if as_json:
        echo(joined(json_text(_fields(declared)) for declared in found))
        return
    for group, members in grouped(found).items():
        echo(joined([group, *map(_paragraph, members)]))


def _contains(declared: Property[Any], word: str) -> bool:
    texts = (declared.spelling, *declared.aliases, declared.group, declared.sentence)
    return any(word in text.lower() for text in texts)


def _fields(declared: Property[Any]) -> dict[str, Any]:
    return {
        "key": declared.spelling,
        "aliases": declared.aliases,
        "group": declared.group,
        "meaning": declared.sentence,
        "default": declared.default,
        "unit": declared.unit,
        "valid": declared.valid,
        "secret": declared.secret,
        "connector_default": declared.connector or None,
    }


def all_properties(registry: Registry) -> list[Property[Any]]:
    """Return the properties of the library and of plugins, in the order of declaration.

    Classes declare their properties when they are imported. A class whose extra is missing is skipped.
    """
    from recordpublisher.plugins.spark import write_options  # noqa: F401
    from recordpublisher.plugins.spark.options import spark_options  # noqa: F401

    for table in registry.tables().values():
        for name in table.names():
            with contextlib.suppress(PluginError):
                table.get(name, key="")
    return declared_properties()


def _paragraph(declared: Property[Any]) -> str:
    key, default = styled(declared.spelling, bold=True), default_text(declared)
    if not any(map(str.isalnum, default)):  # a separator, such as ";"
        default = f"'{default}'"
    older = f"; also spelt {', '.join(declared.aliases)}" if declared.aliases else ""
    secret = "; a secret, which is never shown" if declared.secret else ""
    return SafeText(
        f"  {key}\n      {declared.sentence}\n      default: {default}; valid: {declared.valid}{older}{secret}"
    )


def grouped(declared: Iterable[Property[Any]]) -> dict[str, list[Property[Any]]]:
    """Return the properties by group. Groups are sorted by name, and properties are in the order of declaration."""
    groups: dict[str, list[Property[Any]]] = {}
    for one in declared:
        groups.setdefault(one.group or "Others", []).append(one)
    return dict(sorted(groups.items()))


def default_text(declared: Property[Any]) -> str:
    """Return the default with its unit, as text."""
    if declared.default is None:
        return "not set"
    shown = str(declared.default).lower() if isinstance(declared.default, bool) else str(declared.default)
    return f"{shown} {unit_after(declared.default, declared.unit)}".strip()

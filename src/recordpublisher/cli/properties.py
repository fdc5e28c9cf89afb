"""`recordpublisher properties`: every property there is, for people and as the reference page."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.plugins.spark import options as spark_options  # noqa: F401 - it declares
from recordpublisher.plugins.spark.writer import write_options as spark_writing_options  # noqa: F401 - it declares
from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.properties import table as property_table  # noqa: F401 - it declares
from recordpublisher.publishers.properties.properties import Property, declared_properties

from .reference_page import default_words, grouped, reference_page, valid_words


def properties(
    markdown: Annotated[bool, typer.Option("--markdown", help="Write the reference page instead.")] = False,
) -> None:
    """List every property: key, default, what is valid, what it is for; those of installed plugins too."""
    _import_what_declares()
    if markdown:
        typer.echo(reference_page(declared_properties()), nl=False)
        return
    for group, members in grouped(declared_properties()).items():
        typer.echo("\n".join([group, *map(_paragraph, members)]))


def _import_what_declares() -> None:
    """Classes declare their properties when they are imported; one whose extra is missing is passed over."""
    for table in load_registry().tables().values():
        for name in table.names():
            with contextlib.suppress(PluginError):
                table.get(name, key="")


def _paragraph(declared: Property[Any]) -> str:
    return f"  {declared.spelling}\n      {declared.sentence}\n      default: {default_words(declared)}; valid: {valid_words(declared)}"

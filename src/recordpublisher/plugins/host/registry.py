"""Finds the class that is registered under a name, and the plugin that registered it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from recordpublisher.consumer.deserialization import Deserializer
from recordpublisher.consumer.watermark_strategies import WatermarkStrategy
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import RecordSource
from recordpublisher.publishers.errors import ConfigurationError, PluginError, RecordPublisherError
from recordpublisher.publishers.properties.properties import is_unknown
from recordpublisher.publishers.safe_text import mask_quoted, repr_of
from recordpublisher.publishers.user_code import (
    describe_error,
    exits_as_errors,
    is_raised_in_user_code,
    logging_if_blocked,
    raised_line,
)

BLOCK_VARIABLE = "RECORDPUBLISHER_BLOCK_PLUGINS"
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Registry:
    """The names of every kind of class, and the plugins that were found (`plugins`).

    Each kind has a table: `publishers`, `sinks`, `stores`, `watermark_strategies`, `deserializers` and `metrics_exporters`.
    `not_blocked` has a message for each name in RECORDPUBLISHER_BLOCK_PLUGINS that is not a plugin.
    """

    def __init__(self) -> None:
        self.plugins: list[PluginStatus] = []
        self.not_blocked: list[str] = []
        self.publishers = NameTable[RecordSource]("publisher", self.plugins, RecordSource)
        self.sinks = NameTable[Sink]("sink", self.plugins, Sink)
        self.stores = NameTable[ConditionalStore]("store", self.plugins, ConditionalStore)
        self.watermark_strategies = NameTable[WatermarkStrategy]("watermark strategy", self.plugins, WatermarkStrategy)
        self.deserializers = NameTable[Deserializer]("deserializer", self.plugins)
        self.metrics_exporters = NameTable[MetricsExporter]("metrics exporter", self.plugins, MetricsExporter)

    def import_chosen(self, properties: Mapping[str, str]) -> bool:
        """Import the classes that may have declared the given properties. Return whether a plugin may declare properties that are unknown
        still, because it could not be imported or is blocked.

        These are the classes that values of properties name, alone or in a list, and the plugin classes whose names are parts of keys. (A
        file that two jobs share may have keys of both.) If a key is still unknown after that, the classes of all plugins are imported.
        """
        self._import_named(properties)
        return any(map(is_unknown, properties)) and bool(self.import_all())

    def import_all(self) -> list[str]:
        """Import the classes of all plugins, which then have declared their properties.

        Return a message for each plugin that was not loaded, for each class that could not be imported, and for each name that two plugins
        have registered.
        """
        not_loaded = [str(plugin) for plugin in self.plugins if plugin.state != "loaded"]
        return [*not_loaded, *self.import_classes()]

    def import_classes(self) -> list[str]:
        """Import the classes of the plugins that were loaded. Return the messages of `import_all` about classes and names."""
        messages = []
        for table in self.tables().values():
            for claim in table.claims():
                # A built-in class that cannot be imported only lacks an extra.
                if claim.owner.plugin != "builtins" and claim.name.lower() not in table.clashing:
                    try:
                        table.get(claim.name, "")
                    except PluginError as error:
                        messages.append(str(error))
            messages += table.clashes()
        return messages

    def _import_named(self, properties: Mapping[str, str]) -> None:
        chosen = {name.partition(":")[0].strip().lower() for value in properties.values() for name in value.split(",")}
        in_keys = {part for key in properties for part in key.lower().replace("_", "-").split(".")}
        for table in self.tables().values():
            for claim in table.claims():
                is_in_key = claim.owner.plugin != "builtins" and claim.name.lower() in in_keys
                if claim.name.lower() in chosen or is_in_key:
                    with suppress(PluginError):  # The error is raised later, where the name is used.
                        table.get(claim.name, "")

    def tables(self) -> dict[str, NameTable[Any]]:
        """Return the tables by the last part of their hook's name, for example `sinks` of `recordpublisher_register_sinks`."""
        return {name: table for name, table in vars(self).items() if isinstance(table, NameTable)}


class NameTable(Generic[T]):
    """The names of one kind of class, for example of sinks.

    - `kind`: the kind of class in messages.
    - `plugins`: the registry's list of all plugins that were found. A plugin that was not loaded may have a name that is missing here.
    - `base`: the class of which each class must be a subclass. If it is None, anything that can be called is accepted.
    """

    def __init__(self, kind: str, plugins: Sequence[PluginStatus], base: type[T] | None = None) -> None:
        self.kind = kind
        self._plugins = plugins
        self._base = base
        self._claims: dict[str, NameClaim[T]] = {}
        self._clashes: dict[str, str] = {}
        """The messages about names that two plugins have registered, by the name in lower case."""

    def claim(self, claim: NameClaim[T]) -> None:
        """Register a name. If another plugin has registered the same name, `get` refuses it from then on."""
        known = self._claims.setdefault(claim.name.lower(), claim)
        if known is not claim:
            if known.owner == claim.owner:
                self._clashes[claim.name.lower()] = (
                    f"the {self.kind} '{claim.name}' is registered twice by {claim.owner} (plugin '{claim.owner.plugin}'), as "
                    f"'{known.name}' and '{claim.name}', which are one name: a name is compared without upper and lower case"
                )
                return
            self._clashes[claim.name.lower()] = (
                f"the {self.kind} '{claim.name}' is registered by {known.owner} (plugin '{known.owner.plugin}') and by "
                f"{claim.owner} (plugin '{claim.owner.plugin}'); {_way_to_one(known.owner, claim.owner)}"
            )

    @property
    def clashing(self) -> set[str]:
        """The names, in lower case, that two plugins have registered."""
        return set(self._clashes)

    def clashes(self) -> list[str]:
        """Return a message for each name that two plugins have registered."""
        return list(self._clashes.values())

    def check(self, claim: NameClaim[T]) -> None:
        """Check that the class is of the right kind. A class given by its path is checked at its first use.

        Raises: PluginError if it is of another kind.
        """
        if not isinstance(claim.provided, str):
            self._check_class(claim, claim.provided)

    def get(self, name: str, key: str) -> type[T]:
        """Return the class registered under `name`, the value of the property `key`.

        Raises: ConfigurationError if the name is unknown; PluginError if the class cannot be imported, or if two plugins have registered
        the name. The ConfigurationError lists the registered names and the plugins that were not loaded.
        """
        if clash := self._clashes.get(name.strip().lower()):
            raise PluginError(clash)
        claim = self._claims.get(name.strip().lower())
        if claim is None:
            near = get_close_matches(name.strip().lower(), sorted(self._claims), n=1)
            meant = f"did you mean '{self._claims[near[0]].name}'?" if near else ""
            reason = "; ".join(filter(None, [self.why_absent(), meant]))
            raise ConfigurationError(key, name, ", ".join(self.names()), reason=reason)
        return self._check_class(claim, _import_class(claim, self.kind))

    def make(self, name: str, key: str, *arguments: Any) -> T:
        """Return an object of the class registered under `name`, made with `arguments`.

        Raises: the errors of `get`; the RecordPublisherErrors of the class; PluginError if a plugin's class raises another error.
        """
        made: Any = self.get(name, key)
        claim = self._claims[name.strip().lower()]
        if claim.owner.plugin == "builtins":  # An unexpected error of our own class needs its traceback.
            return cast("T", made(*arguments))
        try:
            words = f"`{getattr(made, '__name__', name)}.__init__`"
            with exits_as_errors(is_import=False), logging_if_blocked(lambda: words):
                return cast("T", made(*arguments))
        except RecordPublisherError:
            raise
        except Exception as error:
            described = described_with_line(error)
            for properties in (each for each in arguments if isinstance(each, Mapping)):
                described = mask_quoted(described, properties)
            raise PluginError(
                f"the {self.kind} '{claim.name}' of {claim.owner} could not be made: {described}"
            ) from error

    def names(self) -> list[str]:
        """Return the names in their plugins' spelling, sorted."""
        return sorted(claim.name for claim in self._claims.values())

    def claims(self) -> list[NameClaim[T]]:
        """Return every registered name with its plugin and class, sorted by name."""
        return sorted(self._claims.values(), key=lambda claim: claim.name)

    def why_absent(self) -> str:
        """Return, for a message, why a name is unknown. Plugins that failed come first, because the missing class may be in one of them."""
        failed = [f"{plugin}" for plugin in self.not_loaded() if plugin.state == "failed"]
        blocked = [f"{plugin}" for plugin in self.not_loaded() if plugin.state != "failed"]
        absent = f"no {self.kind} of that name is installed"
        if failed:
            absent = f"none of the plugins that were loaded has a {self.kind} of that name"
        return "; ".join([*failed, absent, *blocked])

    def not_loaded(self) -> list[PluginStatus]:
        """Return the plugins that were found and are blocked or failed."""
        return [plugin for plugin in self._plugins if plugin.state != "loaded"]

    def _check_class(self, claim: NameClaim[T], provided: Any) -> type[T]:
        fits = (
            callable(provided)
            if self._base is None
            else isinstance(provided, type) and issubclass(provided, self._base)
        )
        if not fits:
            wanted = "callable" if self._base is None else f"a subclass of {self._base.__name__}"
            raise PluginError(
                f"the {self.kind} '{claim.name}' of {claim.owner} is {repr_of(provided)}, which is not {wanted}"
            )
        return cast("type[T]", provided)


class Registrar(Protocol[T_contra]):
    """The argument of every hook: a plugin adds its names to it."""

    def add(self, name: str, provided: type[T_contra] | str) -> None:
        """Register a class under `name` (case-insensitive). A class given as `"package.module:Class"` is imported at its first use."""


class NameClaim(msgspec.Struct, Generic[T], frozen=True):
    """One name that a plugin registers (a claim), the plugin, and the class."""

    name: str
    provided: type[T] | str
    owner: NameOwner


class NameOwner(msgspec.Struct, frozen=True):
    """The plugin that registers a name: its entry-point name and its distribution."""

    plugin: str
    distribution: str

    @property
    def block_names(self) -> list[str]:
        """The names by which the plugin can be blocked: its own and that of its distribution. Messages show both."""
        return [normalized(self.plugin), normalized(self.distribution)]

    def __str__(self) -> str:
        """Return the distribution, with its version if it is installed. A plugin that is given as an argument may not be installed."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return f"{self.distribution} {version(self.distribution)}"
        except PackageNotFoundError:
            return self.distribution


class PluginStatus(msgspec.Struct, frozen=True):
    """The result of loading one plugin.

    - `state`: loaded, blocked or failed.
    - `reason`: why it was not loaded.
    """

    owner: NameOwner
    state: str
    reason: str = ""

    def __str__(self) -> str:
        return f"plugin '{self.owner.plugin}' of {self.owner} was not loaded: {self.reason}"


def normalized(name: str) -> str:
    """Return a name in the form in which distribution names are compared: in lower case, with dashes instead of underscores and dots."""
    return name.strip().lower().replace("_", "-").replace(".", "-")


def _way_to_one(known: NameOwner, other: NameOwner) -> str:
    """Return, for a message, what a user can do about a name that two plugins have registered."""
    if known.plugin == "builtins":
        return f"uninstall the second, or block it with {BLOCK_VARIABLE}={other.block_names[0]}"
    alone = []
    for owner, rival in ((known, other), (other, known)):
        # A name that both have, such as that of their entry points, would block both.
        own = [name for name in owner.block_names if name not in rival.block_names]
        alone += [f"{BLOCK_VARIABLE}={own[0]}"] if own else []
    return f"uninstall one, or block it with {' or '.join(alone)}" if alone else "uninstall one, or rename one"


def _import_class(claim: NameClaim[T], kind: str) -> Any:
    if not isinstance(claim.provided, str):
        return claim.provided
    module, _, name = claim.provided.partition(":")
    try:
        with exits_as_errors():
            return getattr(importlib.import_module(module), name)
    except Exception as error:
        raise PluginError(
            f"the {kind} '{claim.name}' of {claim.owner} cannot be imported from {claim.provided}: "
            f"{described_with_line(error)}{hidden_by_folder(error)}"
        ) from error


def described_with_line(error: BaseException) -> str:
    """Return the class and message of an error, and the line that raised it if that is a line of plugin code."""
    place = f" at {raised_line(error)}" if is_raised_in_user_code(error, or_installed=True) else ""
    return f"{describe_error(error)}{place}"


def hidden_by_folder(error: BaseException) -> str:
    """Return a clause for an error message if a folder hides the package that could not be imported; else an empty text.

    Python takes a folder without `__init__.py` in the working directory for a package that is installed in editable mode.
    """
    package = sys.modules.get((getattr(error, "name", None) or "").partition(".")[0])
    if not isinstance(error, ImportError) or package is None or getattr(package, "__file__", None) is not None:
        return ""
    folders = ", ".join(getattr(package, "__path__", ()))
    return (
        f"; the folder {folders} hides the package of that name; rename it, or run from another folder"
        if folders
        else ""
    )

"""Finds the installed plugins by entry point (`load_registry`), loads those that are not blocked, and registers their names."""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from difflib import get_close_matches
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pluggy

from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.errors import ConfigurationError, PluginError
from recordpublisher.publishers.properties.reading_properties import RECORD_PUBLISHER
from recordpublisher.publishers.user_code import exits_as_errors, logging_if_blocked

from ..stores.back_ends import BY_SCHEME
from . import built_ins, hookspecs
from .registry import (
    BLOCK_VARIABLE,
    NameClaim,
    NameOwner,
    NameTable,
    PluginStatus,
    Registry,
    described_with_line,
    hidden_by_folder,
    normalized,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


_KNOWN_HOOKS = frozenset(name for name in vars(hookspecs) if name.startswith(hookspecs.REGISTER))
_log = logging.getLogger(__name__)


def load_registry(plugins: Iterable[object] = ()) -> Registry:
    """Register the built-ins, then every installed plugin that is not blocked, then `plugins`. These are imported already.

    A plugin that fails to load is listed as failed, and the others are loaded. The error about an unknown name shows why the plugin failed.
    A name that two plugins register is an error where it is used. A plugin that calls this function while it is loaded gets the names of
    the other plugins.
    """
    registry, blocked = Registry(), _blocked_names()
    loaded: list[object] = []
    candidates = [*_installed_in(_search_path()), *map(_given_candidate, plugins)]
    registry.not_blocked = _not_blocked(blocked, [name for each in candidates for name in each.owner.block_names])
    for candidate in candidates:
        if candidate.owner in _LOADING.get():
            continue
        if blocked.keys() & set(candidate.owner.block_names):
            registry.plugins.append(PluginStatus(candidate.owner, "blocked", f"named in {BLOCK_VARIABLE}"))
        else:
            registry.plugins.append(_load(candidate, loaded, registry))
    return registry


def publisher_class(name: str) -> type[RecordPublisherFactory]:
    """Return the class of a publisher of shards by its registered name, for a plugin that wraps it.

    Raises: ConfigurationError if the name is not registered, or is a queue; PluginError if the class cannot be imported.
    """
    made = load_registry().publishers.get(name, RECORD_PUBLISHER.key)
    if not issubclass(made, RecordPublisherFactory):
        raise ConfigurationError(RECORD_PUBLISHER.key, name, "a publisher of shards", reason="a queue has no positions")
    return made


def warn_of_broken_plugins(registry: Registry) -> None:
    """Log once which plugins were not loaded, which names two plugins have registered, and which blocked names are not plugins.

    A job that uses none of them still runs.
    """
    failed = [str(plugin) for plugin in registry.plugins if plugin.state == "failed"]
    clashes = [clash for table in registry.tables().values() for clash in table.clashes()]
    for message in [*failed, *clashes, *registry.not_blocked]:
        _warn_once(message)


@lru_cache(maxsize=100)
def _warn_once(message: str) -> None:
    """Log a message, once in this process. A program may load the registry often."""
    _log.warning("%s", message)


def _load(candidate: _Candidate, loaded: list[object], registry: Registry) -> PluginStatus:
    """Load one plugin and register its names. An error inside the plugin is not raised; the plugin is listed as `failed`.

    - `loaded`: the plugins that were loaded before. This one is added.
    """
    owner = candidate.owner
    try:
        with exits_as_errors(), _watched(owner), _being_loaded(owner):
            claims = _collect_claims(candidate, loaded, registry)
    except Exception as error:
        reason = f"{described_with_line(error)}{hidden_by_folder(error)}"
        return PluginStatus(owner, "failed", reason)
    for table, claim in claims:  # Registered only now, so that a plugin that fails halfway registers no name.
        table.claim(claim)
    return PluginStatus(owner, "loaded")


_LOADING: ContextVar[frozenset[NameOwner]] = ContextVar("_LOADING", default=frozenset())
"""The plugins whose module or hook runs now. Without it, two plugins that call `publisher_class` then would load each other for ever."""


@contextmanager
def _being_loaded(owner: NameOwner) -> Iterator[None]:
    token = _LOADING.set(_LOADING.get() | {owner})
    try:
        yield
    finally:
        _LOADING.reset(token)


def _watched(owner: NameOwner) -> AbstractContextManager[None]:
    """Return a context that logs if the import or hook that runs inside it does not return. For the built-ins it does nothing."""
    if owner.plugin == "builtins":
        return nullcontext()
    return logging_if_blocked(lambda: f"the import or a hook of {owner} (plugin '{owner.plugin}')")


def _collect_claims(
    candidate: _Candidate, loaded: list[object], registry: Registry
) -> list[tuple[NameTable[Any], NameClaim[Any]]]:
    """Call the hooks of this plugin, and return the names that it registers.

    Raises: PluginError if the plugin was loaded before, or if its hooks are faulty (`_check_hook_names`); the errors of the plugin.
    """
    plugin = candidate.load()
    if any(plugin is other for other in loaded):
        raise PluginError("another entry point names the same object, whose names are registered already")
    # Each plugin has a manager of its own, which compares and hashes its plugins: an odd one would make later ones fail.
    manager = _new_manager()
    manager.register(plugin, name=f"{candidate.owner.distribution}:{candidate.owner.plugin}")
    _check_hook_names(plugin, manager)
    claims: list[tuple[NameTable[Any], NameClaim[Any]]] = []
    for kind, table in registry.tables().items():
        getattr(manager.hook, hookspecs.REGISTER + kind)(registry=_Collector(candidate.owner, table, claims))
    loaded.append(plugin)
    return claims


class _Candidate(msgspec.Struct, frozen=True):
    """A plugin before it is loaded."""

    owner: NameOwner
    load: Callable[[], object]


class _Collector(msgspec.Struct):
    """The registrar that a hook receives. It collects the names of one plugin."""

    owner: NameOwner
    table: NameTable[Any]
    claims: list[tuple[NameTable[Any], NameClaim[Any]]]

    def add(self, name: str, provided: type[Any] | str) -> None:
        """Register a name for a class, or for `"package.module:Class"`.

        Raises: PluginError if the name has other characters than letters, digits, dots, hyphens and underscores, or if the class is of
        another kind.
        """
        if not isinstance(name, str) or not name.strip():
            raise PluginError(f"a name must be a non-empty string, not {name!r}")
        if re.fullmatch(r"[\w.-]+", name.strip()) is None:  # It stands in keys, in lists and before a colon.
            raise PluginError(f"'{name}' cannot be a name: write letters, digits, dots, hyphens and underscores")
        if self.table.kind == "store" and re.fullmatch(r"[a-zA-Z][a-zA-Z0-9.-]+", name.strip()) is None:
            raise PluginError(
                f"'{name}' cannot be the scheme of a URI: write at least two ASCII letters, digits, dots and hyphens, a letter first"
            )
        built_in = BY_SCHEME.get(name.strip().lower()) if self.table.kind == "store" else None
        if built_in is not None and built_in.name.lower() != name.strip().lower():
            raise PluginError(
                f"'{name}' is a scheme of the built-in store '{built_in.name.lower()}': write another name"
            )
        claim = NameClaim(name.strip(), provided, self.owner)
        self.table.check(claim)
        self.claims.append((self.table, claim))


def _check_hook_names(plugin: object, manager: pluggy.PluginManager) -> None:
    """Check that the plugin has hooks, that all of them are known, and that each of them can add names.

    Without this check, names of a faulty plugin would be missing without a message.

    Raises: PluginError if there is no hook, or if a hook is misspelt, is not marked, lacks the parameter `registry`, is async, or is a
    generator.
    """
    hooks = manager.get_hookcallers(plugin) or []
    unknown = [caller.name for caller in hooks if not caller.has_spec()]
    near = [each for name in unknown for each in get_close_matches(name, sorted(_KNOWN_HOOKS), n=1)]
    meant = f"; did you mean {', '.join(near)}?" if near else ""
    found = (
        f"its hooks are not known: {', '.join(unknown)}{meant}" if unknown else _hook_that_adds_nothing(plugin, hooks)
    )
    if not found and not hooks:
        found = "it registers nothing, because no function is marked with @recordpublisher.hookimpl"
    if found:
        raise PluginError(found)


def _hook_that_adds_nothing(plugin: object, hooks: Sequence[pluggy.HookCaller]) -> str:
    """Return in words which function of the plugin would add no name, even though pluggy accepts it. Return "" if there is none."""
    for hook in hooks:
        for each in hook.get_hookimpls():
            place, function = f"`{hook.name}` in {_module_of(each.function, plugin)}", each.function
            if each.plugin is not plugin:
                continue
            if "registry" not in each.argnames:
                return f"{place} adds nothing: write `def {hook.name}(registry)`, without a default"
            if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
                return f"{place} would not run: write a plain function, without `async` and `yield`"
    for name in _KNOWN_HOOKS.intersection(dir(plugin)).difference(hook.name for hook in hooks):
        function = getattr(plugin, name)
        if inspect.isroutine(function) and not hasattr(function, f"{hookspecs.PROJECT}_spec"):
            place = f"`{name}` in {_module_of(function, plugin)}"
            return f"{place} is not marked: write @recordpublisher.hookimpl above it"
    return ""


def _module_of(function: object, plugin: object) -> str:
    return getattr(function, "__module__", None) or type(plugin).__module__


def _new_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def _search_path() -> tuple[tuple[str, int], ...]:
    """Return the entries of `sys.path`, each with the time of its last change (ns). An installation changes its folder."""
    # Programs may append Path objects, which imports skip.
    places = (place for place in sys.path if isinstance(place, str))
    return tuple((place, _changed_ns(place)) for place in places)


def _changed_ns(place: str) -> int:
    try:
        return os.stat(place or os.curdir).st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _installed_in(places: tuple[tuple[str, int], ...]) -> list[_Candidate]:
    """Return the built-ins, then the plugins that are installed by entry point.

    - `places`: the entries of `sys.path`, each with the time of its last change (ns).

    The result is cached for the same `places`, because searching a few hundred distributions takes milliseconds.
    """
    built_in = _Candidate(NameOwner("builtins", hookspecs.PROJECT), lambda: built_ins.plugin)
    has_other_finders = any(
        hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder
    )
    if not has_other_finders and not any(_may_have_plugins(place) for place, _ in places):
        return [built_in]
    from importlib.metadata import entry_points  # Imported here because it costs 20 ms of CPU.

    points = sorted(entry_points(group=hookspecs.PROJECT), key=lambda point: (_distribution_of(point), point.name))
    return [built_in, *map(_installed_candidate, points)]


def _may_have_plugins(place: str) -> bool:
    """Return whether a distribution in this entry of `sys.path` has entry points in our group. True if that is not known."""
    try:
        names = os.listdir(place or os.curdir)
    except FileNotFoundError:
        return False
    except OSError:  # The place is an archive.
        return True
    group = f"[{hookspecs.PROJECT}]".encode()
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            with suppress(OSError):  # Most distributions have no entry points.
                if group in Path(place, name, "entry_points.txt").read_bytes():
                    return True
    return place.endswith(".egg")


def _installed_candidate(point: EntryPoint) -> _Candidate:
    return _Candidate(NameOwner(point.name, _distribution_of(point)), point.load)


def _given_candidate(plugin: object) -> _Candidate:
    return _Candidate(
        NameOwner(getattr(plugin, "__name__", type(plugin).__name__), "passed as argument"), lambda: plugin
    )


def _distribution_of(point: EntryPoint) -> str:
    # A distribution has no name if its METADATA is missing, as after an installation that was interrupted.
    return (point.dist and point.dist.name) or "unknown distribution"


def _blocked_names() -> dict[str, str]:
    """Return the names in RECORDPUBLISHER_BLOCK_PLUGINS as the user wrote them, by their normalized form."""
    names = (name.strip() for name in os.environ.get(BLOCK_VARIABLE, "").split(","))
    return {normalized(name): name for name in names if name}


def _not_blocked(blocked: Mapping[str, str], installed: Sequence[str]) -> list[str]:
    """Return a message for each blocked name that no installed plugin has. Such a name is probably misspelt."""
    messages = []
    for name, written in blocked.items():
        if name not in installed:
            near = get_close_matches(name, installed, n=1)
            meant = f"; did you mean '{near[0]}'?" if near else ""
            messages.append(f"{BLOCK_VARIABLE} names '{written}', but no plugin of that name is installed{meant}")
    return messages

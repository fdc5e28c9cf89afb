"""Opens the store for a location. The location is a path, or a URI of a back end in `back_ends.py` or of a plugin's store."""

from pathlib import Path

from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import STATE_URI
from recordpublisher.publishers.properties.properties import Properties

from ..host.plugin_loading import load_registry
from ..host.registry import Registry
from .back_ends import BACK_ENDS, FOLDER, REFUSED_SCHEMES, back_end_of, forms_of
from .durable_files import path_of


def conditional_store_of(
    location: str, key: str, properties: Properties, registry: Registry | None = None, *, is_for_claims: bool = False
) -> ConditionalStore:
    """Return the store at a location. It is a built-in store or a plugin's store, depending on the location's scheme.

    - `key`: the property that contains the location.
    - `properties`: have region, credentials and the job's name.
    - `is_for_claims`: whether the tasks of a Spark query keep their claims (what they have read) there.

    Raises: ConfigurationError if no store has this scheme, if the store cannot hold claims, or if the location is not valid.
    """
    stores, name = (registry or load_registry()).stores, back_end_of(location).name
    built_in = [each for each in BACK_ENDS.values() if each.has_claims or not is_for_claims]
    of_plugins = [known for known in stores.names() if known not in BACK_ENDS]
    forms = forms_of(built_in, *(f"{known.lower()}://..." for known in of_plugins))
    if name.lower() not in {known.lower() for known in (*(each.name for each in built_in), *of_plugins)}:
        raise ConfigurationError(key, location, forms, reason=REFUSED_SCHEMES.get(name) or stores.why_absent())
    scheme, colon, _ = location.partition(":")
    if colon and name == FOLDER.name and scheme.lower() in map(str.lower, of_plugins):
        # Without this, the positions would be in a folder of that name, below the folder in which the process runs.
        reason = f"a location of the store {scheme.upper()} begins with {scheme.lower()}://"
        raise ConfigurationError(key, location, forms, reason=reason)
    return stores.make(name, key, location, key, properties)


def missing_folder(location: str) -> Path | None:
    """Return the folder at a location if it does not exist. Return None if it exists, or if the location is not a folder."""
    if back_end_of(location) is not FOLDER:
        return None
    folder = Path(path_of(location, STATE_URI.key))
    return None if folder.is_dir() else folder

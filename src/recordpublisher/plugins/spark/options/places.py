"""The options for the place where a query keeps its claims, and for what it does if they are lost."""

import os
import warnings
from collections.abc import Sequence
from typing import Any

from recordpublisher.plugins.stores.by_location import NOT_FOR_CLAIMS, conditional_store_of
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.properties import Properties

from . import SPARK

_PLACE = "a folder that the driver and every executor see, s3://bucket/prefix or dynamodb://table/job"
ROOT_VARIABLE = "RECORDPUBLISHER_METADATA_ROOT"
"""A variable in the driver's environment: the `metadataRoot` of queries that name no place.

It is needed because Spark does not show its configuration to a Python source.
"""

METADATA_LOCATION = SPARK.text(
    "flink.spark.metadata.location",
    "Where claims are kept, one place for each query: a folder that driver and executors see, s3://bucket/prefix or "
    "dynamodb://table/job.",
    aliases=("metadataLocation",),
)
METADATA_ROOT = SPARK.text(
    "flink.spark.metadata.root",
    "Instead of `metadataLocation`: one place for the claims of all queries. Not set: the variable "
    f"{ROOT_VARIABLE} of the driver.",
    aliases=("metadataRoot",),
)
ON_METADATA_LOSS = SPARK.choice(
    "flink.spark.metadata.loss",
    "A query with a checkpoint whose claims are lost or elsewhere: FAIL, or REPLAY (the records of the last batch come again).",
    "FAIL",
    ("FAIL", "REPLAY"),
    aliases=("onMetadataLoss",),
)
METADATA_PROPERTIES = (METADATA_LOCATION, METADATA_ROOT, ON_METADATA_LOSS)


def with_default_root(properties: Properties) -> Properties:
    """Return the properties with the place that the driver's environment names, unless the options name one.

    Tasks get the place with the options.
    """
    root = os.environ.get(ROOT_VARIABLE)
    is_given = properties.is_set(METADATA_LOCATION) or properties.is_set(METADATA_ROOT)
    return properties.merged({METADATA_ROOT.key: root}) if root and not is_given else properties


def warn_of_missing_place(properties: Properties, of_queries: Sequence[Property[Any]]) -> None:
    """Warn if an option of `of_queries` is given without a place. Spark reports only at the start of a query that it is one."""
    given = [option.aliases[0] for option in of_queries if properties.is_set(option)]
    if given and not any(map(with_default_root(properties).is_set, (METADATA_LOCATION, METADATA_ROOT))):
        text = (
            f"'{given[0]}' is for a query, which fails at its start without 'metadataLocation'; spark.read ignores it"
        )
        warnings.warn(text, UserWarning, stacklevel=3)


def metadata_key(properties: Properties) -> str:
    """Return the option that names the place."""
    return "metadataRoot" if properties.is_set(METADATA_ROOT) else "metadataLocation"


def metadata_place(properties: Properties, *, is_needed: bool) -> str:
    """Return the place, checked as far as possible without a call; empty if none is given or needed.

    Raises: ConfigurationError if the place is missing although it is needed, if it is invalid, or if two are given.
    """
    location, root = properties.value(METADATA_LOCATION), properties.value(METADATA_ROOT)
    if location is not None and root is not None:
        raise ConfigurationError.conflict("metadataRoot", "metadataLocation", reason="both give the place of claims")
    if location is None and root is None and not is_needed:
        return ""
    place = location or root
    if place is None:
        valid = f"{_PLACE}, for this query; or 'metadataRoot' or the driver's variable {ROOT_VARIABLE}, for all queries"
        raise ConfigurationError("metadataLocation", None, valid)
    conditional_store_of(place, metadata_key(properties), properties, refused=NOT_FOR_CLAIMS)
    return place

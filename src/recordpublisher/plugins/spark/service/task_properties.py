"""task_properties: the properties with which the tasks of a job read."""

from __future__ import annotations

from collections.abc import Mapping

from recordpublisher.publishers.properties.groups.fanout import REGISTRATION
from recordpublisher.publishers.properties.properties import Properties


def task_properties(properties: Properties, arns: Mapping[str, str]) -> Properties:
    """The properties of the tasks, which do not register consumers, since the driver did."""
    return properties.merged({**arns, REGISTRATION.key: "NONE"}) if arns else properties

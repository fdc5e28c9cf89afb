"""The options of a job that reads: parsed and checked; nothing is opened. Start at `spark_options.py`."""

from typing import Any

from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.property_types import PropertyGroup


class OptionGroup(PropertyGroup):
    """Properties that are options of Spark by a short name, their first alias; the description names it."""

    def _declare(self, type_name: str, key: str, sentence: str, *rest: Any, **more: Any) -> Property[Any]:
        option = "".join(f" Option `{name}`." for name in more.get("aliases", ())[:1])
        return super()._declare(type_name, key, sentence + option, *rest, **more)


SPARK = OptionGroup("Spark")

"""Parses and checks the options of a job that reads, without opening anything. Start at `spark_options.py`."""

from typing import Any

from recordpublisher.publishers.properties.declaration import Property, PropertyGroup


class OptionGroup(PropertyGroup):
    """Declares properties that are also options of Spark. A property's first alias is the option's name. It is added to the description."""

    def _declare(self, type_name: str, key: str, sentence: str, *rest: Any, **more: Any) -> Property[Any]:
        option = "".join(f" Option `{name}`." for name in more.get("aliases", ())[:1])
        return super()._declare(type_name, key, sentence + option, *rest, **more)


SPARK = OptionGroup("Spark")

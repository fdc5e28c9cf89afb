"""Properties, which are declared once, parsed and checked (C1).

Start at `properties.py`. The declarations are in `groups/`, and `keywords.py` lists the groups.

Public: the functions that declare a property, for plugins with settings of their own.
"""

from .property_types import boolean, choice, integer, number, optional_integer, prefix, text

__all__ = ["boolean", "choice", "integer", "number", "optional_integer", "prefix", "text"]

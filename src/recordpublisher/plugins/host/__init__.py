"""The plugin host: finds plugins, keeps the class registered under each name, and builds the classes that properties name.

Start at `hookspecs.py` (what a plugin implements). From a property's value to a class: `registry.py`; to an object:
`build_from_properties.py`.
"""

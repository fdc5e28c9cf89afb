"""Plugins found and named: hook specifications, manager, registry. Start at `hookspecs.py`."""

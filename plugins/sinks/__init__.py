"""Sinks: where records go."""

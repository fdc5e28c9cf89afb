"""Measures how far a job is behind a stream, by its stored positions. Start at `probe.py`; `recordpublisher lag` uses it."""

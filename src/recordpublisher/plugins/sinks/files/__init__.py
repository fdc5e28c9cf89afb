"""File sinks.

Readers see complete files only, and each record is in exactly one of them. Start at `sink.py`, the base of all file sinks.
"""

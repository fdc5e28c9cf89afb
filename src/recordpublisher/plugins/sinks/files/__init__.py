"""File sinks: complete files only, with each record in exactly one of them. Start at `sink.py`, the base of all file sinks."""

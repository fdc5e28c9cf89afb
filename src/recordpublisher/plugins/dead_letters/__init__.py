"""The dead letters of a job: read where they were written, and replayed into its handler or its streams. Start at `base.py`."""

"""The stored positions of a job: importing them from a file, moving them from and to the KCL, resetting them.

Start at `kcl_transfer.py` and `reset.py`; `recordpublisher positions` uses them.
"""

"""The stored positions of a job: importing them from a file, moving them from and to the KCL, resetting them.

Start at `kcl_transfer.py` and `file_import.py`; `recordpublisher positions` uses them. `kcl_lease_table.py` has the format of a lease.
"""

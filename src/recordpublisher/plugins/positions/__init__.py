"""The stored positions of a job, and how they come from a file, and from and to the KCL.

Start at `kcl_transfer.py` and `file_import.py`; `recordpublisher positions` uses them. `kcl_lease_table.py` has the format of a lease.
"""

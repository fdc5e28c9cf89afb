"""The stored positions of a job, and how they are moved from and to other clients of Kinesis.

Start at `position_transfer.py`; `recordpublisher positions` uses it. `kcl_leases.py` has the format of the KCL's lease table.
"""

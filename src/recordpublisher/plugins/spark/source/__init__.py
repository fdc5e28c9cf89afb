"""Queries: the driver plans micro-batches as offsets, and tasks read them and store claims. Start at `batch_planner.py`.

`next_offset.py` computes each offset from the last one and its claims; `task_read.py` is one task.
"""

"""Queries: the driver plans micro-batches as offsets, and tasks read them and store claims. Start at `batch_plan.py`.

`batch_plan.py` computes each plan from the last offset and its claims, and decides what to do now. `batch_planner.py` calls it, and
`query_planner.py` carries the steps out. `task_read.py` is one task.
"""

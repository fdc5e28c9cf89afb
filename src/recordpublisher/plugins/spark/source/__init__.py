"""Queries: the driver plans micro-batches as offsets, and tasks read them and store claims. Start at `plan.py`.

`plan.py` computes each plan from the last offset and its claims, and `next_step.py` decides what to do now. `batch_planner.py` calls both,
and `plugins/spark/query_planner.py` carries the steps out. `task_read.py` is one task.
"""

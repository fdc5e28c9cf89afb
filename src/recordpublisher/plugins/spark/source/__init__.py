"""Streaming queries. The driver plans each micro-batch as an offset. Tasks read it and store claims (what they have read).

- `batch_plan.py` computes each plan from the last offset and its claims, and decides what the driver does now. Start here.
- `batch_planner.py` loads the claims, and calls `batch_plan.py`.
- `patient_planner.py` carries out what was decided, waits, and tries again.
- `task_plans.py` makes the tasks of a batch.
- `task_read.py` is one task.
"""

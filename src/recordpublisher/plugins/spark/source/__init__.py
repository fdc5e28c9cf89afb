"""Queries: the driver plans each micro-batch as an offset, and tasks read it and store claims (what they have read).

`batch_plan.py` computes each plan from the last offset and its claims, and decides what to do now. `batch_planner.py` calls it.
`patient_planner.py` carries the steps out, waits, and tries again. `task_plans.py` makes the tasks of a batch, and `task_read.py` is one
task. Start at `batch_plan.py`.
"""

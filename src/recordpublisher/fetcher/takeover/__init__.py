"""Going over from a fixed number of subtasks (STATIC) to a group of workers (ELASTIC), and back, in one store (E10).

`to_group.py` and `to_subtasks.py` are the two ways. The lease table decides which kind the store belongs to: it is open for a group, and
closed or missing for subtasks. Each way first stops the other kind for good, and then replaces the version of the table that it has read.
"""

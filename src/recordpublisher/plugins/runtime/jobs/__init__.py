"""A job that runs from its properties alone: one subtask in this process, or several processes under a supervisor.

Start at `supervisor.py` for the processes, at `subtask.py` for what each of them runs.
"""

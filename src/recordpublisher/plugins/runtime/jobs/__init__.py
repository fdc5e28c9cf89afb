"""A job that runs from its properties alone: one subtask in this process, or several processes under a supervisor.

Start at `supervisor.py` for the processes, and at `subtask.py` for the work of each process.
"""

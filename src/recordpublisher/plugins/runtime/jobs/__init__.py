"""A job that runs from its properties alone: in this process, or several processes under a supervisor.

Start at `supervisor.py` for the processes, and at `process.py` for the work of each process.
"""

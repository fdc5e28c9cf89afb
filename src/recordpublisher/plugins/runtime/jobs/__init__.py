"""A job from its properties alone: one subtask in a process, or several under a supervisor."""

"""The `recordpublisher` command: `app.py` lists the subcommands.

They are in `job_commands/`, `stream_commands/` and `commands/`.
"""

"""The `recordpublisher` command: `app.py` lists the subcommands, which are in `commands/`."""

"""The `recordpublisher` command: `app.py` lists the subcommands, `commands/` holds them."""

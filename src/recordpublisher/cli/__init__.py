"""The `recordpublisher` command, one file per subcommand. Start reading in app.py."""

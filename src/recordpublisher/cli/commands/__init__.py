"""The subcommands of `recordpublisher`, each in a file of its name; those that list or change streams are in `streams.py`."""

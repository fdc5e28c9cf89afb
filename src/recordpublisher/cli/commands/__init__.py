"""The subcommands of `recordpublisher`, each in a file of its name; related ones share a file."""

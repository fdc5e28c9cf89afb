"""The subcommands, one file each: a function with Typer options of the same name."""

"""File sinks: files that appear whole, each record in exactly one of them."""

"""Commands that look at a stream, change it, write to it and read it."""

"""A third-party publisher: lines of local files."""

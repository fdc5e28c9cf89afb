"""What commands write to stderr: how much (`verbosity.py`), in which format, and the options that say so."""

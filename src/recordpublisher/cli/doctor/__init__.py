"""The checks of `recordpublisher doctor`: each is one line, ok or what to do. Start at `findings.py`."""

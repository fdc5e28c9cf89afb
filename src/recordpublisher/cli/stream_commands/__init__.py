"""Commands for streams: `streams.py` lists, describes and changes them, `put.py` writes to them, `tail.py` reads them."""

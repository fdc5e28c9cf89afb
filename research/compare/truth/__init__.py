"""One schedule of reshards, throttling, lost answers and a kill, played to several clients: `make compare-truth`."""

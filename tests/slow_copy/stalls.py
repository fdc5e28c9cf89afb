"""A process that prints a line for each time that the machine did not run it: [moment, seconds].

Moments are of CLOCK_MONOTONIC, which all processes share.
"""

import json
import time

SLEEP_SECONDS, MIN_STALL_SECONDS = 0.01, 0.05

while True:
    began = time.monotonic()
    time.sleep(SLEEP_SECONDS)
    lost = time.monotonic() - began - SLEEP_SECONDS
    if lost >= MIN_STALL_SECONDS:
        print(json.dumps([began, round(lost, 3)]), flush=True)

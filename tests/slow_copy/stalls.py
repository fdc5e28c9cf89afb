"""A process that only looks at the clock: prints a line for each time that the machine did not let it run, [moment, seconds].

Moments are those of CLOCK_MONOTONIC, which all processes share.
"""

import json
import time

LOOK_SECONDS, LEAST_SECONDS = 0.01, 0.05

while True:
    began = time.monotonic()
    time.sleep(LOOK_SECONDS)
    lost = time.monotonic() - began - LOOK_SECONDS
    if lost >= LEAST_SECONDS:
        print(json.dumps([began, round(lost, 3)]), flush=True)

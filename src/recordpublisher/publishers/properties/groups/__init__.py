"""The declarations of our own properties: of reading, of a job, and of sinks. `GROUPS` in `../properties.py` lists the groups."""

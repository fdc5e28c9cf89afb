"""Elastic assignment: workers join and leave a running job and share its shards by leases. Start at `worker.py`.

The documents of a group are in `documents/`, what follows from them in `planning/`. Ids such as E5 name the rules in
docs/decisions/elastic.md.
"""

"""The declarations of our own properties, a file for each section or two of the reference page. `../table.py` lists the groups."""

"""The declarations of our own properties, in a file for each section or two of the reference page. `../keywords.py` lists the groups."""

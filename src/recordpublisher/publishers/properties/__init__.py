"""Properties: declared once, parsed and checked (C1).

Start at `properties.py`; the declarations stand by group, `table.py` is their index.
"""

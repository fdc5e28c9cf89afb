"""Properties: declared once, parsed and checked (C1). Start at `properties.py`; `table.py` imports the declarations of all groups."""

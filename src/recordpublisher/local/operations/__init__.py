"""The API operations of the endpoint. Start at table.py, which lists them all."""

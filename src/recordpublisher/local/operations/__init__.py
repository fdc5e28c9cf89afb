"""The API operations of the endpoint. Start reading in table.py: it lists them all."""

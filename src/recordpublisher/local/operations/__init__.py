"""The API operations of the endpoint. `OPERATIONS` of the dispatcher lists them all."""

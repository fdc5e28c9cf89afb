"""The operations of the API, as the endpoint carries them out. `OPERATIONS` of the dispatcher lists all of them."""

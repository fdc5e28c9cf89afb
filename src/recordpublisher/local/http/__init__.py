"""The endpoint's HTTP: formats, signatures, and the servers for HTTP/1.1 and for HTTP/2."""

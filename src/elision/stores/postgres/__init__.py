"""Sessions in PostgreSQL: `address` parses the URL, `connection` reaches the server, `store` keeps the protocol."""

"""Sessions in PostgreSQL: `address` says where, `link` reaches the server, `store` keeps the protocol."""

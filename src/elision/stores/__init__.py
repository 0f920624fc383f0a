"""Where sessions are kept: one protocol (`store`), several places."""

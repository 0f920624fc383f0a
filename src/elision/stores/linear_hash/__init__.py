"""A store of our own: a log of values, and linear hashing on 4 KB pages as its directory.

Read `log` for durability, `directory` for the hashing, `catalogue` for what records mean, `store` for the calls.
"""

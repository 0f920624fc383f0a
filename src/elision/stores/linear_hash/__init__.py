"""A store of our own: a log of values, and linear hashing on 4 KB pages as its directory.

Read `log` for durability, `records` for what is in it, `directory` for the hashing, `catalogue` for what records add up
to, `folder` for the files, `writer` for what is written, `store` for the calls.
"""

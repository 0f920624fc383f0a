"""A page store of our own: linear hashing on 4 KB pages, a write-ahead log, readers beside one writer.

Read `table` for the hashing, `writer` for durability, `store` for what turns become.
"""

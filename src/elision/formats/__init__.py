"""Recorded trajectories -> turns, one reader a file.

`registry.read_runs(path)` is the door: `source` turns a path into documents, the registry asks each reader whether a
document is its format, the reader feeds messages to the `assembler`, and runs and problems come out. Nothing of a file
is executed, extracted to disk or sent anywhere.
"""

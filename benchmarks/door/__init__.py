"""What stands around a gateway that is measured: a provider that answers at once, a bare pass-through, clients.

Each runs in a process of its own; `benchmarks.gateway` starts them.
"""

<<<<<<< HEAD
"""What makes the adapter of each framework for the contract."""
=======
"""A hook for each framework: it makes the adapter that a host plays with."""
>>>>>>> 453a4519 (An adapter for Strands Agents: a plugin that hides old results in requests, and has Claude clear what is bound)

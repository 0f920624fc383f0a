"""One contract for all adapters: each framework's own loop, in its own environment, plays the same scenarios.

A test asks `environments.run_host` for the recordings of a framework. It starts `worker` in the environment that has
the framework. The worker plays each scenario (`scenarios`) in processes of its own, with the framework's agent loop and
a scripted model (`hosts`). It prints what the model got and what the framework stored; `checks` reads these recordings.
`contract` has the tests that every adapter passes.
"""

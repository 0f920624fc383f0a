"""A closed loop for tests: agents that read only the prompt they are sent, on tasks with a checkable answer."""

"""What the packages of all providers use."""

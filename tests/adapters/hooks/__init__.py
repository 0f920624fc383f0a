"""What makes the adapter of each framework for the contract."""

"""Task families of the closed loop."""

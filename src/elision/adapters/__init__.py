"""What connects agent frameworks to the library. Each adapter changes the request alone, never the stored history."""

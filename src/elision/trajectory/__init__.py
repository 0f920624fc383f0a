"""Values: turns, views, plans, events, tokens, usage, prices. Nothing here decides anything."""

"""A client's own messages, live: read into turns as they come, and sent on with gaps in them.

What is not hidden stays the very object that the client gave, whatever fields it has; what is hidden is a copy of it
with another text. Nothing is ever written into a client's message.
"""

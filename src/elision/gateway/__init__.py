"""The gateway door: an agent changes its base URL, nothing else.

    ASGI -> route -> limits -> body -> who asks -> session -> view -> upstream -> answer, read on its way by

Untouched messages keep their very bytes, credentials pass and are never kept, and whatever fails in here, the request
goes out as it came (I9). `proxy.py` is the path of one request; read it first.
"""

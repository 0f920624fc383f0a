"""The gateway: an agent changes its base URL, nothing else.

    ASGI -> route -> limits -> body -> client -> session -> view -> upstream -> response, observed on its way

Messages that are not hidden keep their bytes. Credentials pass and are never stored. Whatever fails here, the request
is forwarded unchanged (I9). `proxy.py` is the path of one request; read it first.
"""

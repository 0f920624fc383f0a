"""Start coding agents behind a gateway: by environment and flags alone, never by a user's file.

    table row + gateway's URL -> launch plan -> terminal -> one line of savings

`agent_table.py` says what each agent reads; read it first.
"""

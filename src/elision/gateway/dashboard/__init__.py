"""The page that shows a gateway's owner what it saved: figures from the store, an API of JSON, one page.

    store -> readings (logs folded as they grow) -> figures (sums) -> told (JSON) -> pages (routes) -> page.html

Everything it says is in the store, so any process shows what all of them did.
"""

"""The page that shows what a gateway saved: totals from the store, an API of JSON, one page.

    store -> session_cache (logs as they grow) -> totals (sums) -> json_views (JSON) -> pages (routes) -> page.html

Everything it shows is in the store, so any process shows what all of them did.
"""

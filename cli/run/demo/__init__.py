"""`calve demo`: everything once, on this machine."""

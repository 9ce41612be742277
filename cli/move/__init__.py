"""`calve move`: a table goes on with a copy of its topic on another cluster."""

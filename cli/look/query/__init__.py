"""`calve query`: SQL over the tables of the lake, by DuckDB in this process."""

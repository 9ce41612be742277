"""How each mode writes a batch: the rows to keep, and the table rows they replace."""

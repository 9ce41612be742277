"""A table's state as values: its position, its ledger, and the decisions of a round. Knows no configuration."""

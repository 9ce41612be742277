"""A table's state as values: its position, its ledger, and the decisions of a round. Does not depend on the configuration."""

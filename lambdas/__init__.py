"""Functions: one folder each, a thin handler beside its domain code. No Spark."""

"""Arrow arrays and compiled loops, for every room that decodes."""

"""Rules for the rounds of a table: when the next one begins, how many dead letters are allowed, what a commit costs."""

"""Rules for the rounds of a table: when the next one begins, how many dead letters are too many, what a commit costs."""

"""Tables with a key: which record of each key is the row, or what all of them add up to."""

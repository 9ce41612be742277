"""Tables whose rows are told apart by keys: which record of each is the row, or what all of them come to."""

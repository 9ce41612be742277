"""What a mode does with a batch: which rows stay, and which rows of the table they replace."""

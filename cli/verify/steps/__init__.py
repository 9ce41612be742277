"""The steps of a table, told without the engine: what they make of decoded rows, batch by batch."""

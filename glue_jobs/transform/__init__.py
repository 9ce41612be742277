"""The steps of a table (`calve.config.steps`): pure functions from one frame of rows (`row_columns`) to another."""

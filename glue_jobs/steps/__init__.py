"""The steps of a table (`calve.config.steps`): pure functions from a frame of rows to one, see `glue_jobs.steps.frame`."""

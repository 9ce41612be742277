"""The steps of `glue_jobs.transform` on Arrow columns instead of Spark rows: the same rows and the same rejects.

`planning` checks a table's steps on the driver and refuses any whose results could differ. Everything else runs in tasks.
"""

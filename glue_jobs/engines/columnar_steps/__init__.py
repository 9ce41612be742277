"""What `glue_jobs.transform` does to rows of Spark, done to columns of Arrow: the same rows, and the same rejects.

`planning` looks at a table's steps on the driver and refuses those that could come out otherwise; everything else runs in tasks.
"""

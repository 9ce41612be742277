"""What `glue_jobs.maintain` does to a table: each kind of work is a file, and a commit says where the table stood (ADR 31)."""

"""The work of `glue_jobs.maintain`: one file per kind. Every commit repeats the table's position (ADR 31)."""

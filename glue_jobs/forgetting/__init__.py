"""Who and what goes when a person is forgotten; `glue_jobs.forget` does one after the other."""

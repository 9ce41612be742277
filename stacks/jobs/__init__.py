"""The Glue jobs: their code, roles and schedules, and the functions that keep them running."""

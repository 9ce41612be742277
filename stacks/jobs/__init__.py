"""The Glue jobs: their code, their rights, their schedules, and the functions that keep them running."""

"""The loops of a job, and the rounds that they run."""

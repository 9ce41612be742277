"""The loops of a job, and the rounds they run. A round is one micro-batch of one table."""

"""The mail that tells recipients of a new file, or that there is none."""

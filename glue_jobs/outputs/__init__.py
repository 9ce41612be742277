"""Outputs of a table after a commit: emitted records and announcements."""

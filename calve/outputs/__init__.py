"""The outputs of a table: emitted records, announcements, metrics, and the job's status report."""

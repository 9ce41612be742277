"""What leaves a table: emitted records, announcements, metrics, and the job's report of its tables."""

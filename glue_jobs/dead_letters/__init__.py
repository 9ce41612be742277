"""The dead-letter table beside a table: its records, their encryption, and the marks of redriven ones."""

"""Values to columns, and a reason for each rejected value. No Python for each record."""

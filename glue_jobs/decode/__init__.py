"""Decode values to columns, with a reject reason for each bad value. No Python per record."""

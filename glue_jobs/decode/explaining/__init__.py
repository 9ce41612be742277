"""Explain why a rejected value does not match its schema: slow and clear, for rejects only. No explanation contains a value."""

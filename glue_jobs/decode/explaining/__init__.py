"""Why a rejected value does not match its schema: slow and clear, for rejects alone. No explanation holds a value."""

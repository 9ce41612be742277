"""The operator's commands and the embedded stack; never deployed."""

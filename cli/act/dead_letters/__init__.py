"""`calve dead-letters`: what could not be read, where it lies, and a way to take it out."""

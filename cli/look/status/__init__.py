"""What `calve status` shows."""

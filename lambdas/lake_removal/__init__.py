"""Deletes the lake when its stack is destroyed with both keys."""

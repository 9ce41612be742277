"""Removes the lake for good, when its stack is destroyed with both keys."""

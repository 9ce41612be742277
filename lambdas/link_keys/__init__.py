"""The signing keys of the links: the first one, and their rotation."""

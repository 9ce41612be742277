"""Trino, with a catalog of the emulator's Glue: a reader of the lake's tables."""

"""Spark Connect: a server with the lake's catalog, and a client in a process of its own."""

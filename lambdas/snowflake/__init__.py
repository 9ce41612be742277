"""Shared by the functions for Snowflake: key pairs, the SQL API, statements."""

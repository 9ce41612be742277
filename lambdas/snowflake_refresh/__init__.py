"""Keeps Snowflake's tables where the lake's are."""

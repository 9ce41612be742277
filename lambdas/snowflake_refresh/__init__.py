"""Refreshes Snowflake's tables after commits in the lake."""

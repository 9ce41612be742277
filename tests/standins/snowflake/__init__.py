"""A stand-in for Snowflake's SQL API on this machine: a model of an account that refuses what the real one would refuse."""

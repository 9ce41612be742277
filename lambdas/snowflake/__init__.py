"""What the functions for Snowflake share: a key pair's token, the SQL API, the statements."""

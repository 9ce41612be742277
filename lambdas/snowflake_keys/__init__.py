"""Rotates the key pair of the deployment's user in Snowflake."""

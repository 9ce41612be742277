"""The custom resource of a deployment's objects in Snowflake, and of the trust between them and AWS."""

"""Makes a deployment's objects in Snowflake, and the trust between them and AWS; a custom resource."""

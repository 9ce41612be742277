"""Data that leaves the lake: Snowflake, Iceberg REST catalogs, exports and their mails."""

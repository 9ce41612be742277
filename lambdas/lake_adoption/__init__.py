"""Makes the lake's bucket, key and database, or takes over those that an earlier deployment kept."""

"""Creates the lake's bucket, key and database, or adopts those that an earlier deployment kept."""

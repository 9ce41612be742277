"""Creates, adopts and deletes the bucket, key and database of the lake."""

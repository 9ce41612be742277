"""Iceberg through its Java API: catalog, data files without a commit, commits, file layout. Does not depend on Kafka."""

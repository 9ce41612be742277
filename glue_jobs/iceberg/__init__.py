"""Iceberg through its Java API: catalog, data files without a commit, commits, file layout. Knows no Kafka."""

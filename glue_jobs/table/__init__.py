"""One open table: its columns, rows, position, and the counts of a read. Does not depend on Kafka."""

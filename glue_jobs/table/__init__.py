"""One open table: its columns, its rows, its position, and the counts of a read. Knows no Kafka."""

"""What is read in the benchmark: topics of different records."""

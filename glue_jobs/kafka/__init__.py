"""Kafka: clients, metadata, and a bounded fetch of record batches."""

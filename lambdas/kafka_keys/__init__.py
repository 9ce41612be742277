"""Rotation of the passwords of Kafka's SCRAM users."""

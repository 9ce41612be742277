"""Passwords of Kafka's SCRAM users, changed by Secrets Manager."""

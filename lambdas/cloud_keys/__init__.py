"""Rotation of Confluent Cloud API keys."""

"""API keys of Confluent Cloud, changed by Secrets Manager."""

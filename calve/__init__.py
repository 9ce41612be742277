"""Core of calve: values and rules, no Spark, no AWS, no Kafka client."""

"""`calve init`: a commented calve.yaml, made from what a Kafka and a registry hold."""

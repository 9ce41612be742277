"""What outlives a deployment: the lake, the Kafka cluster, and the rights of people to both."""

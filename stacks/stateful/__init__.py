"""What outlives a deployment: the lake and the Kafka cluster, and the rights of people to both."""

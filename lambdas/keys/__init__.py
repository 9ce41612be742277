"""Keys that rotate: of Confluent Cloud, of Kafka's users, and of the links in mails."""

"""A real database: PostgreSQL, and Debezium's connector in Kafka Connect, beside a running stack."""

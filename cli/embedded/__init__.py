"""The embedded stack: a Kafka broker, a schema registry and an AWS emulator on this machine's loopback."""

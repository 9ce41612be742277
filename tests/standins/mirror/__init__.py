"""A second Kafka cluster, and MirrorMaker 2 that copies topics to it, beside a running stack."""

"""`calve capture`: records of a topic with their schemas, masked, as a folder that a test replays."""

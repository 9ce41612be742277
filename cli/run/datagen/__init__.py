"""`calve datagen`: example records for a topic, the same ones for the same seed, malformed ones included."""

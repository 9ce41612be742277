"""`calve verify`: table and topic compared offset by offset, without the engine."""

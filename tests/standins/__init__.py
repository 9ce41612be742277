"""Programs that stand in for what tables are published to, for tests and the demo: no part of calve."""

"""An Iceberg REST catalog: the server of the Iceberg project's own tests, over the emulator's S3."""

"""The sections of calve.yaml as pydantic models, one file for each subject."""

"""What the operators are mailed about, by what it is about: each names its paragraph in docs/operations.md."""

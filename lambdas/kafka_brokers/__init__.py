"""Tells a deploy the bootstrap servers of an MSK cluster, which CloudFormation does not."""

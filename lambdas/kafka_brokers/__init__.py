"""Reports the bootstrap servers of an MSK cluster to a deploy; CloudFormation does not."""

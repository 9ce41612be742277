"""`calve cost`: what a configuration costs in AWS, by rates that are kept in one file."""

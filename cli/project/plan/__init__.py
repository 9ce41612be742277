"""`calve plan`: the configuration against what is deployed, as a tree; nothing is changed."""

"""What commands that look, and those that ask a job for something, call in AWS: an integration test finds no other, the
policies allow these. Resources are below `ARN` of a deployment that is named trading.
"""

ARN = "arn:<Partition>:{service}:<Region>:<AccountId>:"
BUCKET = "arn:<Partition>:s3:::trading-lake-<AccountId>-<Region>/"
METADATA = "trading/trades/metadata/00001-a.metadata.json"
METADATA_ENDS = (".metadata.json", ".avro", "/metadata/calve-orphans.json")
STATUS = {
    "glue:GetTable": "table/trading/trades",
    "s3:GetObject": METADATA,
    "cloudformation:DescribeStacks": "stack/trading-publish/4fd0",
    "dynamodb:Scan": "table/trading-publish-States8A-1B2",
}
TOLD = "_calve/status/trading/main.json"
"""What a job says of its tables, which `calve status` reads as well."""
ASKING = {"glue:UpdateTable": "table/trading/trades", "s3:PutObject": METADATA}

"""DynamoDB: conditional items."""

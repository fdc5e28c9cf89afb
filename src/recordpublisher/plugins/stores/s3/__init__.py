"""S3: conditional puts."""

"""The spool: what long-running fetchers have read and a query has not taken yet; files, and manifests that say which of them count."""

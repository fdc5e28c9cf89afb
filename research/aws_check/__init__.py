"""The endpoint beside a real account: `make aws-check` says where they differ, `make aws-clean` deletes what a killed check has left."""

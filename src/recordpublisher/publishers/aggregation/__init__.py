"""The KPL's aggregation format, both directions."""

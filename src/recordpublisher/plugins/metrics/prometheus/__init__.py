"""The pages that Prometheus and probes read. Beside the code: a dashboard for Grafana and alert rules."""

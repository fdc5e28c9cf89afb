"""The pages that Prometheus and probes read. The folder also has a dashboard for Grafana and alert rules."""

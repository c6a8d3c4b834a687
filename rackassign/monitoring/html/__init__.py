"""One HTML page for each report: no network, no script, and every name that it shows is escaped."""

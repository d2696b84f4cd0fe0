"""What an operator sees: status, metrics, HTTP, log lines.

Read in this order: status (of the process), metrics, web, log_lines. Nothing here changes a delivery.
"""

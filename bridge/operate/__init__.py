"""What an operator sees: metrics, the HTTP endpoint, log lines.

It owns how a status is shown, not the status itself (`bridge.supervise.status`). Nothing here changes a
delivery.

Read in this order: metrics (names and units), web, log_lines.
"""

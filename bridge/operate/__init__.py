"""What an operator sees: the page, metrics, health, log lines.

Read in this order: monitor (rates, lag and disk over time), health (what stops logs, said once), scrub
(what a check of the logs found), metrics (every name, with what to do), access (who may ask for what),
server and listener (how it is served), endpoint (the answers), page, page.html, page.js and chart.js (what a
person sees), log_lines (and the last problems, for the page), unit_events (of archives). This room reads
statuses of bridge.supervise and sizes of files. It delivers nothing, and changes a log's forwarding only
through `Supervisor.control` and `seek`, with the token.
"""

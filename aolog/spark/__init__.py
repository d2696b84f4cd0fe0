"""Logs as tables and streams of Spark."""

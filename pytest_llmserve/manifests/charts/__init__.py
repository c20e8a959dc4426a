"""Helm: values of charts that are known, values of any chart, templates."""

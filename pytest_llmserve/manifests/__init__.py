"""Deployment files read into launches, one small reader a form."""

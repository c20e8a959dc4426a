"""The thin layer that pytest sees; nothing else imports it."""

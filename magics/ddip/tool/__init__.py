"""The shell tool `ddip`. A verb is imported when it runs: `ddip status` does not wait for what
others need."""

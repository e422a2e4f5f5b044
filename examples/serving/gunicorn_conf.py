"""Two workers of four threads each, forked from a process that has the bundle."""

preload_app = True
workers = 2
worker_class = "gthread"
threads = 4
graceful_timeout = 30

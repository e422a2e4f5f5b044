"""charts: SVG and HTML as text, without a library; every text that is given is escaped."""

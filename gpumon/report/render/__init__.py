"""The forms of a report: text, Markdown, HTML, JSON."""
